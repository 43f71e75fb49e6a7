; reals_functions.smt2: elementary functions by what is known of E = e^v, L = ln v and Q = the root of v, for the arguments that
; occur (law.*).
(declare-fun E (Real) Real)
(declare-fun L (Real) Real)
(declare-fun Q (Real) Real)
(define-fun f.exp ((a F)) F
  (ite (is.nan a) nan (ite (is.inf a) (ite (below a) (zero false) a) (ite (is.zero a) one (of.real (E (val a)))))))
(define-fun f.expm1 ((a F)) F (ite (is.zero a) a (f.sub (f.exp a) one)))
(define-fun f.log ((a F)) F
  (ite (is.zero a) (inf true) (ite (or (is.nan a) (negative a)) nan (ite (is.inf a) a (of.real (L (val a)))))))
(define-fun f.log1p ((a F)) F (f.log (f.add a one)))
(define-fun f.sqrt ((a F)) F
  (ite (is.zero a) a (ite (or (is.nan a) (negative a)) nan (ite (is.inf a) a (of.real (Q (val a)))))))
(define-fun f.rsqrt ((a F)) F (f.recip (f.sqrt a)))
(define-fun f.sigmoid ((a F)) F (f.recip (f.add one (f.exp (f.neg a)))))
(define-fun f.softplus ((a F)) F (f.log1p (f.exp a)))
; powers with the exponents 1/2, -1/2, -1, 2, 3, 4 (IEEE 754: the root of -0 is 0, that of -inf is inf)
(define-fun f.root ((a F)) F
  (ite (is.zero a) (zero false) (ite (is.inf a) (inf false) (f.sqrt a))))
(define-fun f.inverse.root ((a F)) F (f.recip (f.root a)))
(define-fun f.inverse ((a F)) F (f.recip a))
(define-fun f.square ((a F)) F (f.mul a a))
(define-fun f.cube ((a F)) F (f.mul (f.mul a a) a))
(define-fun f.fourth ((a F)) F (f.mul (f.mul a a) (f.mul a a)))
(define-fun law.exp ((a F)) Bool
  (=> (is.fin a) (let ((v (val a))) (and (> (E v) 0.0) (> (E (- v)) 0.0) (= (* (E v) (E (- v))) 1.0) (= (L (E v)) v)
                                         (= (> (E v) 1.0) (> v 0.0)) (= (< (E v) 1.0) (< v 0.0))))))
(define-fun law.log ((a F)) Bool (=> (and (is.fin a) (= (val a) 1.0)) (= (L (val a)) 0.0)))
(define-fun law.sqrt ((a F)) Bool
  (=> (and (is.fin a) (> (val a) 0.0)) (and (> (Q (val a)) 0.0) (= (* (Q (val a)) (Q (val a))) (val a)))))
; ln(a e^b) = ln a + b
(define-fun law.log.exp ((a F) (b F)) Bool
  (=> (and (is.fin a) (> (val a) 0.0) (finite b)) (= (L (* (val a) (ite (is.zero b) 1.0 (E (val b))))) (+ (L (val a)) (real b)))))
