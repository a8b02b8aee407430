//! Files of tests stand in front of another file, and most calls are that one's.

/// All calls of [`RawFile`](kseg_io_backends::RawFile) but `align`, `caps` and `submit`, which go to the field of this name.
macro_rules! forward_to {
    ($field:tt) => {
        fn path(&self) -> std::path::PathBuf {
            self.$field.path()
        }

        fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, kseg_io_backends::IoError> {
            self.$field.read_at(into, at)
        }

        fn len(&self) -> Result<u64, kseg_io_backends::IoError> {
            self.$field.len()
        }

        fn map(
            &self,
            len: usize,
            access: kseg_io_backends::MapAccess,
        ) -> Result<kseg_io_backends::MappedRegion, kseg_io_backends::IoError> {
            self.$field.map(len, access)
        }

        fn map_bytes(&self, range: std::ops::Range<u64>) -> Result<bytes::Bytes, kseg_io_backends::IoError> {
            self.$field.map_bytes(range)
        }

        fn as_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.$field.as_fd()
        }
    };
}
