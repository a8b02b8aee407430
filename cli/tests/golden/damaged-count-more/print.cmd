--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.InvalidRecordException: Incorrect declared batch size, premature EOF reached
