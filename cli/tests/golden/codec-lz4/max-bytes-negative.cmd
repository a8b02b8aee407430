--files 00000000000000000000.log --max-bytes -1
1
Exception in thread "main" java.lang.IllegalArgumentException: Invalid size: -1 in read from FileRecords(size=5052, file=00000000000000000000.log, start=0, end=2147483647)
