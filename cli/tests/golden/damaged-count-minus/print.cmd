--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.InvalidRecordException: Found invalid record count -1 in magic v2 batch
