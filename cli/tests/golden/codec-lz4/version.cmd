--version
0
