--files 00000000000000000000.log,x.foo
0
Ignoring unknown file x.foo
