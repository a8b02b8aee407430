--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.errors.CorruptRecordException: Found record size 13 smaller than minimum record overhead (14) in file 00000000000000000000.log.
