--files 00000000000000000000.log,x.foo --print-data-log
0
Ignoring unknown file x.foo
Non-consecutive offsets in $DIR/00000000000000000000.log
  -1 is followed by 3
  3 is followed by 0
