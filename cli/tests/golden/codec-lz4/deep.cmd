--files 00000000000000000000.log --deep-iteration
0
