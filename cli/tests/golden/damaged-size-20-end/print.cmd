--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.KafkaException: Failed to load record batch at position 448 from FileRecords(size=480, file=00000000000000000000.log, start=0, end=480)
