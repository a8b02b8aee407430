--files 00000000000000000000.log,x.foo --print-data-log
1
Exception in thread "main" org.apache.kafka.common.KafkaException: java.io.IOException: Stream unsupported (invalid magic bytes)
