//! The segments of a log, by base offset: an immutable list, replaced as a whole, that readers hold on to.

use std::sync::Arc;

use kseg_format::Offset;
use kseg_segment::Segment;

use crate::error::{Error, Result};

/// Segments in ascending order of their base offsets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    list: Vec<Arc<Segment>>,
    /// Their base offsets, side by side: a search among many segments touches none of them.
    bases: Vec<Offset>,
    /// How often segments have been replaced by others that hold the same offsets at other places.
    swaps: u64,
}

impl Segments {
    /// The list with `segment` put in, in the place of one with the same base offset.
    pub(crate) fn with(&self, segment: Arc<Segment>) -> Segments {
        let base = segment.base_offset();
        let at = self.bases.partition_point(|&b| b < base);
        let behind = at + usize::from(self.bases.get(at) == Some(&base));
        Segments {
            list: [&self.list[..at], &[segment], &self.list[behind..]].concat(),
            bases: [&self.bases[..at], &[base], &self.bases[behind..]].concat(),
            swaps: self.swaps,
        }
    }

    /// The list without those for which `gone` is true.
    pub(crate) fn without(&self, gone: impl Fn(&Segment) -> bool) -> Segments {
        let kept: Segments = self.list.iter().filter(|s| !gone(s)).cloned().collect();
        Segments { swaps: self.swaps, ..kept }
    }

    /// The list with `new` in the place of `old`.
    pub(crate) fn swapped(&self, old: &[Arc<Segment>], new: Vec<Arc<Segment>>) -> Segments {
        let kept = self.without(|s| old.iter().any(|o| o.base_offset() == s.base_offset()));
        let list = new.into_iter().fold(kept, |list, segment| list.with(segment));
        Segments { swaps: self.swaps + 1, ..list }
    }

    /// How often segments have been replaced: places in marks of another count are of other files.
    pub(crate) fn swaps(&self) -> u64 {
        self.swaps
    }

    pub(crate) fn as_slice(&self) -> &[Arc<Segment>] {
        &self.list
    }

    /// The one with the greatest base offset.
    pub(crate) fn active(&self) -> Option<&Arc<Segment>> {
        self.list.last()
    }

    pub(crate) fn get(&self, base: Offset) -> Option<&Arc<Segment>> {
        let at = self.floor_index(base)?;
        (self.bases[at] == base).then(|| &self.list[at])
    }

    /// Index of the segment with the greatest base offset at or below `offset`.
    pub(crate) fn floor_index(&self, offset: Offset) -> Option<usize> {
        self.bases.partition_point(|&base| base <= offset).checked_sub(1)
    }

    /// Those whose base offset is above `offset`.
    pub(crate) fn above(&self, offset: Offset) -> &[Arc<Segment>] {
        &self.list[self.floor_index(offset).map_or(0, |index| index + 1)..]
    }

    /// Sum of the segments' sizes in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.list.iter().map(|s| s.size()).sum()
    }

    /// Those that may hold offsets of `[from, to)`: the one that contains `from` included.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where `to` is below `from`.
    ///
    /// Source: Kafka `LogSegments.values`.
    pub(crate) fn range(&self, from: Offset, to: Offset) -> Result<&[Arc<Segment>]> {
        if to < from {
            let what =
                format!("a range of offsets from {from} to {to}: expected an end at or above its start");
            return Err(Error::InvalidArgument { what });
        }
        if from == to {
            return Ok(&[]);
        }
        let start = self.floor_index(from).unwrap_or(0);
        let end = self.bases.partition_point(|&base| base < to);
        Ok(self.list.get(start..end).unwrap_or_default())
    }
}

impl FromIterator<Arc<Segment>> for Segments {
    /// Takes them in any order; of those with the same base offset the last one counts.
    fn from_iter<I: IntoIterator<Item = Arc<Segment>>>(segments: I) -> Self {
        let mut list: Vec<Arc<Segment>> = segments.into_iter().collect();
        list.sort_by_key(|segment| segment.base_offset());
        list.dedup_by(|later, kept| {
            let same = later.base_offset() == kept.base_offset();
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        let bases = list.iter().map(|segment| segment.base_offset()).collect();
        Segments { list, bases, swaps: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kseg_segment::SegmentConfig;

    fn list(bases: &[i64]) -> Segments {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let dir = std::path::Path::new("/t-0");
        backend.names().create_dir_all(dir).expect("a directory in memory");
        bases.iter().fold(Segments::default(), |list, &base| {
            let segment =
                Segment::open(backend.clone(), dir, Offset::new(base), SegmentConfig::default(), 0, 0);
            list.with(Arc::new(segment.expect("nothing is opened")))
        })
    }

    fn bases(list: &[Arc<Segment>]) -> Vec<i64> {
        list.iter().map(|s| s.base_offset().get()).collect()
    }

    fn range(list: &Segments, from: i64, to: i64) -> Option<Vec<i64>> {
        list.range(Offset::new(from), Offset::new(to)).ok().map(bases)
    }

    #[test]
    fn seg_05_ranges_include_the_segment_that_contains_their_start() {
        let list = list(&[0, 100, 200]);
        assert_eq!(range(&list, 50, 150), Some(vec![0, 100]));
        assert_eq!(range(&list, 0, 100), Some(vec![0]));
        assert_eq!(range(&list, 100, 100), Some(vec![]));
        assert_eq!(range(&list, 150, 150), Some(vec![]));
        assert_eq!(range(&list, 250, 300), Some(vec![200]));
        assert_eq!(range(&list, 0, 201), Some(vec![0, 100, 200]));
        assert_eq!(range(&list, 150, 50), None);
    }

    #[test]
    fn log_edge_66_a_segment_replaces_the_one_with_its_base() {
        let first = list(&[40, 80]);
        let again = list(&[40]);
        let replaced = first.with(again.as_slice()[0].clone());
        assert_eq!(bases(replaced.as_slice()), [40, 80]);
        assert!(Arc::ptr_eq(&replaced.as_slice()[0], &again.as_slice()[0]));
        assert_eq!(bases(replaced.without(|s| s.base_offset().get() == 80).as_slice()), [40]);
    }

    #[test]
    fn a_list_is_in_order_whatever_it_is_made_of() {
        let (few, again) = (list(&[9, 40, 80]), list(&[40]));
        let mixed = [&few.as_slice()[2], &few.as_slice()[1], &again.as_slice()[0], &few.as_slice()[0]];
        let made: Segments = mixed.into_iter().cloned().collect();
        assert_eq!(bases(made.as_slice()), [9, 40, 80]);
        assert!(Arc::ptr_eq(&made.as_slice()[1], &again.as_slice()[0]), "the last of two counts");
        let fewer = made.swapped(&made.as_slice()[1..], list(&[50]).as_slice().to_vec());
        assert_eq!((bases(fewer.as_slice()), fewer.swaps()), (vec![9, 50], 1));
        for (list, searched) in [(&made, [9, 40, 80].as_slice()), (&fewer, &[9, 50])] {
            for offset in 0..100 {
                let floor = searched.iter().rposition(|&base| base <= offset);
                assert_eq!(list.floor_index(Offset::new(offset)), floor, "{searched:?} {offset}");
                let got = list.get(Offset::new(offset)).map(|s| s.base_offset().get());
                assert_eq!(got, searched.contains(&offset).then_some(offset));
            }
        }
    }

    #[test]
    fn log_edge_67_and_68_ranges_of_offsets() {
        let four = list(&[1, 2, 3, 4]);
        assert_eq!(range(&four, 1, 1), Some(vec![]));
        assert_eq!(range(&four, 2, 1), None);
        assert_eq!(range(&four, 1, 3), Some(vec![1, 2]));
        assert_eq!(range(&four, 2, 4), Some(vec![2, 3]));
        assert_eq!(range(&four, 4, 5), Some(vec![4]));
        let three = list(&[0, 10, 20]);
        assert_eq!(range(&three, 1, 5), Some(vec![0]));
        assert_eq!(range(&three, 13, 17), Some(vec![10]));
        assert_eq!(range(&three, 13, 21), Some(vec![10, 20]));
        assert_eq!(range(&three, 0, 21), Some(vec![0, 10, 20]));
    }

    #[test]
    fn log_edge_69_and_71_what_lies_above_and_what_is_sealed() {
        let above = |list: &Segments, offset| bases(list.above(Offset::new(offset)));
        let odd = list(&[1, 3, 5, 7, 9]);
        assert_eq!(above(&odd, 0), [1, 3, 5, 7, 9]);
        assert_eq!((above(&odd, 1), above(&odd, 8), above(&odd, 9)), (vec![3, 5, 7, 9], vec![9], vec![]));
        // The sealed ones from an offset on: all but the active one, which the last of a range is.
        let sealed = |list: &Segments, from: i64| {
            let active = list.active().expect("a segment").base_offset();
            list.range(Offset::new(from), active.max(Offset::new(from))).map(bases).expect("a range")
        };
        let four = list(&[1, 2, 3, 4]);
        assert_eq!((sealed(&four, 2), sealed(&four, 4)), (vec![2, 3], vec![]));
        assert_eq!(sealed(&list(&[0, 1, 2, 3, 4, 5]), 6), [0_i64; 0]);
    }

    #[test]
    fn log_edge_72_sizes_add_up_beyond_32_bits() {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let full = |base| {
            let (dir, base) = (std::path::Path::new("/t-0"), Offset::new(base));
            let config = SegmentConfig::default();
            Segment::open(backend.clone(), dir, base, config, 0, i32::MAX as u64).expect("just fits")
        };
        let list = Segments::default().with(Arc::new(full(0))).with(Arc::new(full(1)));
        assert_eq!(list.size(), 4_294_967_294);
    }

    #[test]
    fn log_edge_70_floors() {
        let list = list(&[1, 3, 5, 7]);
        let floor = |o| list.floor_index(Offset::new(o)).map(|i| list.as_slice()[i].base_offset().get());
        assert_eq!((floor(0), floor(2), floor(3), floor(9)), (None, Some(1), Some(3), Some(7)));
        let (lower, higher) =
            (|o: i64| floor(o - 1), |o: i64| bases(list.above(Offset::new(o))).first().copied());
        assert_eq!((lower(3), lower(4), higher(4), higher(5)), (Some(1), Some(3), Some(5), Some(7)));
        assert!(list.get(Offset::new(3)).is_some() && list.get(Offset::new(4)).is_none());
    }
}
