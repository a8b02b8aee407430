--files .//00000000000000000000.log,,x.foo,nodot,./,00000000000000000000.log.deleted,00000000000000000000.log,,
0
Ignoring unknown file 
Ignoring unknown file x.foo
Ignoring unknown file nodot
Ignoring unknown file .
Ignoring unknown file 00000000000000000000.log.deleted
