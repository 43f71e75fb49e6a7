; sums.smt2: what sums.c declares: e^v, ln v, the root of v, and 1 / s, which is 0 where s is.
(declare-fun E (Real) Real)
(declare-fun L (Real) Real)
(declare-fun Q (Real) Real)
(define-fun part.of ((s Real)) Real (ite (= s 0.0) 0.0 (/ 1.0 s)))
