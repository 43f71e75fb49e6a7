; reals.smt2: nothing is rounded, and nothing overflows.
(define-fun rnd ((v Real)) F (of.real v))
(define-fun law.rnd ((v Real)) Bool true)
(define-fun of.type ((a F)) Bool true)
