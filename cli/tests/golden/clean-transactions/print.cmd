--files 00000000000000000000.index,00000000000000000000.log,00000000000000000000.timeindex --print-data-log
0
Non-consecutive offsets in $DIR/00000000000000000000.log
  -1 is followed by 8
  8 is followed by 11
  11 is followed by 14
