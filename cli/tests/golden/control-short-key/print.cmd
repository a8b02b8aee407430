--files 00000000000000000000.log --print-data-log
1
Exception in thread "main" org.apache.kafka.common.InvalidRecordException: Invalid value size found for control record key. Must have at least 4 bytes, but found only 3
