; common.smt2: numbers of a float type: a real number that is not 0, a zero with its sign, an infinity, NaN. Results of
; arithmetic are `rnd` of the result in real numbers: exact.smt2 and reals.smt2 say what that is.
(declare-datatypes ((F 0)) (((fin (val Real)) (zero (minus Bool)) (inf (below Bool)) (nan))))
(define-fun is.fin ((a F)) Bool ((_ is fin) a))
(define-fun is.zero ((a F)) Bool ((_ is zero) a))
(define-fun is.inf ((a F)) Bool ((_ is inf) a))
(define-fun is.nan ((a F)) Bool ((_ is nan) a))
(define-fun number ((a F)) Bool (=> (is.fin a) (distinct (val a) 0.0)))
(define-fun finite ((a F)) Bool (or (is.fin a) (is.zero a)))
(define-fun plain ((a F)) Bool (or (is.fin a) (= a (zero false))))
(define-fun negative ((a F)) Bool
  (ite (is.fin a) (< (val a) 0.0) (ite (is.zero a) (minus a) (and (is.inf a) (below a)))))
(define-fun real ((a F)) Real (ite (is.fin a) (val a) 0.0))
(define-fun of.real ((v Real)) F (ite (= v 0.0) (zero false) (fin v)))
(define-fun one () F (fin 1.0))
; zeros of either sign are equal, NaN equals itself
(define-fun same ((a F) (b F)) Bool (or (= a b) (and (is.zero a) (is.zero b))))

(define-fun f.neg ((a F)) F
  (ite (is.fin a) (fin (- (val a))) (ite (is.zero a) (zero (not (minus a))) (ite (is.inf a) (inf (not (below a))) nan))))
(define-fun f.abs ((a F)) F (ite (negative a) (f.neg a) a))
(define-fun f.eq ((a F) (b F)) Bool (and (not (is.nan a)) (same a b)))
(define-fun f.ne ((a F) (b F)) Bool (not (f.eq a b)))
(define-fun f.lt ((a F) (b F)) Bool
  (and (not (is.nan a)) (not (is.nan b))
       (ite (is.inf a) (and (below a) (not (= a b))) (ite (is.inf b) (not (below b)) (< (real a) (real b))))))
(define-fun f.le ((a F) (b F)) Bool (or (f.lt a b) (f.eq a b)))
(define-fun f.max ((a F) (b F)) F (ite (or (is.nan a) (is.nan b)) nan (ite (f.lt b a) a b)))
(define-fun f.min ((a F) (b F)) F (ite (or (is.nan a) (is.nan b)) nan (ite (f.lt a b) a b)))

; integers of a type: from low, so many numbers (span); constants are doubles
(define-fun wrap ((low Int) (span Int) (v Int)) Int (+ low (mod (- v low) span)))
(define-fun in.range ((low Int) (span Int) (v Int)) Bool (and (<= low v) (< v (+ low span))))
(declare-fun rounded.double (Int) Int)
(define-fun double ((v Int)) Int
  (ite (and (<= (- 9007199254740992) v) (<= v 9007199254740992)) v (rounded.double v)))
(define-fun is.integer ((a F)) Bool (and (finite a) (= (to_real (to_int (real a))) (real a))))
(define-fun fits ((low Int) (span Int) (v Int)) Bool
  (and (in.range low span v) (< (- 1073741824) v) (< v 1073741824)))
(define-fun is.small ((v Int)) Bool (and (< (- 1073741824) v) (< v 1073741824)))

; casts that do not keep every number
(declare-fun round_bf16 (F) F)
(declare-fun round_f16 (F) F)
(declare-fun round_f32 (F) F)
(declare-fun round_f64 (F) F)
(define-fun truncate ((v Real)) Int (ite (< v 0.0) (- (to_int (- v))) (to_int v)))
