--files 00000000000000000000.index,00000000000000000000.log,00000000000000000000.timeindex,00000000000000000041.index,00000000000000000041.log,00000000000000000041.timeindex --print-data-log
0
Non-consecutive offsets in $DIR/00000000000000000000.log
  -1 is followed by 3
  3 is followed by 7
  7 is followed by 22
  22 is followed by 40
Non-consecutive offsets in $DIR/00000000000000000041.log
  -1 is followed by 60
