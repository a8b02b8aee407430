--files 00000000000000000000.log --max-bytes 0
0
