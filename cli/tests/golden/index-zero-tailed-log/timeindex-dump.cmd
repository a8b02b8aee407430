--files 00000000000000000000.timeindex
1
Exception in thread "main" org.apache.kafka.common.errors.CorruptRecordException: Found record size 0 smaller than minimum record overhead (14) in file $DIR/00000000000000000000.log.
