--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.InvalidRecordException: Invalid record size: expected to read 17 bytes in record payload, but instead read 16
