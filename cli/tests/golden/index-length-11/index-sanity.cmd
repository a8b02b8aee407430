--files 00000000000000000000.index --index-sanity-check
1
Exception in thread "main" org.apache.kafka.storage.internals.log.CorruptIndexException: Index file $DIR/00000000000000000000.index is corrupt, found 11 bytes which is neither positive nor a multiple of 8
