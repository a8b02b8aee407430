--files 00000000000000000100.index,00000000000000000100.log,00000000000000000100.timeindex --deep-iteration
0
Non-consecutive offsets in $DIR/00000000000000000100.log
  -1 is followed by 100
