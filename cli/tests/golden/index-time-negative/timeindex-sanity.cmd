--files 00000000000000000000.timeindex --index-sanity-check
1
Exception in thread "main" org.apache.kafka.storage.internals.log.CorruptIndexException: Corrupt time index found, time index file ($DIR/00000000000000000000.timeindex) has non-zero size but the last timestamp is -5 which is less than the first timestamp 1005
