; arithmetic.smt2: IEEE 754 with `rnd`. NAME.v is the result in real numbers, where the operands are finite.
(define-fun f.add.v ((a F) (b F)) Real (+ (real a) (real b)))
(define-fun f.mul.v ((a F) (b F)) Real (* (real a) (real b)))
(define-fun f.div.v ((a F) (b F)) Real (/ (real a) (real b)))
(define-fun f.add ((a F) (b F)) F
  (ite (or (is.nan a) (is.nan b)) nan
  (ite (is.inf a) (ite (= b (f.neg a)) nan a)
  (ite (is.inf b) b
  (ite (is.zero a) (ite (is.zero b) (zero (and (minus a) (minus b))) b)
  (ite (is.zero b) a (rnd (f.add.v a b))))))))
(define-fun f.sub ((a F) (b F)) F (f.add a (f.neg b)))
(define-fun f.sub.v ((a F) (b F)) Real (- (real a) (real b)))
(define-fun f.mul ((a F) (b F)) F
  (let ((below (xor (negative a) (negative b))))
  (ite (or (is.nan a) (is.nan b)) nan
  (ite (or (is.inf a) (is.inf b)) (ite (or (is.zero a) (is.zero b)) nan (inf below))
  (ite (or (is.zero a) (is.zero b)) (zero below) (rnd (f.mul.v a b)))))))
(define-fun f.div ((a F) (b F)) F
  (let ((below (xor (negative a) (negative b))))
  (ite (or (is.nan a) (is.nan b)) nan
  (ite (is.inf a) (ite (is.inf b) nan (inf below))
  (ite (is.zero b) (ite (is.zero a) nan (inf below))
  (ite (or (is.inf b) (is.zero a)) (zero below) (rnd (f.div.v a b))))))))
(define-fun f.recip ((a F)) F (f.div one a))
(define-fun f.recip.v ((a F)) Real (f.div.v one a))
(define-fun f.relu ((a F)) F (f.max a (zero false)))
