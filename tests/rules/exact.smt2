; exact.smt2: results are rounded by any function that is odd, keeps the sign, and keeps numbers of the type. It may round to 0
; or to infinity. A proof with it holds for every float type. Other functions may be any.
(declare-fun R (Real) F)
(define-fun rnd ((v Real)) F (ite (= v 0.0) (zero false) (R v)))
(define-fun law.rnd ((v Real)) Bool
  (=> (distinct v 0.0) (and (number (R v)) (not (is.nan (R v))) (=> (> v 0.0) (not (negative (R v)))) (= (R (- v)) (f.neg (R v))))))
(define-fun of.type ((a F)) Bool (=> (is.fin a) (= (R (val a)) a)))
(assert (of.type one))
