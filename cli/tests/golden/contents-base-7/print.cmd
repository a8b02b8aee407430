--files 00000000000000000007.log --print-data-log
0
Non-consecutive offsets in $DIR/00000000000000000007.log
  -1 is followed by 7
  4 is followed by 20
  7 is followed by 9
  9 is followed by 3
  21 is followed by 30
  31 is followed by 33
  34 is followed by 40
