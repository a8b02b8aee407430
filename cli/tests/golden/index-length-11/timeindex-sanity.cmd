--files 00000000000000000000.timeindex --index-sanity-check
1
Exception in thread "main" org.apache.kafka.storage.internals.log.CorruptIndexException: Time index file $DIR/00000000000000000000.timeindex is corrupt, found 17 bytes which is neither positive nor a multiple of 12
