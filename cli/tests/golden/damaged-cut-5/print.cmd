--files 00000000000000000000.log,x.foo --print-data-log
0
Ignoring unknown file x.foo
