--files 00000000000000000000.log --print-data-log
1
Exception in thread "main" org.apache.kafka.common.InvalidRecordException: Invalid version found for end transaction marker: -1. May indicate data corruption
