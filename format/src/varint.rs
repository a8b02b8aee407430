//! Variable-length integers: zig-zag, then base 128 with the least significant group first.
//!
//! Encodings longer than need be are accepted; bits of the last allowed byte that do not fit are dropped. A high bit
//! in the fifth byte (of 64-bit numbers the tenth) is an error. Writers use the shortest form.
//!
//! Source: Kafka `ByteUtils.readVarint`, `readVarlong`, `writeVarint`, `writeVarlong`.

/// Why no number could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VarintFault {
    /// The bytes end inside the number.
    End,
    /// The last allowed byte has its high bit set.
    Overlong,
}

/// Takes a zig-zag 32-bit number off the front of `input`.
#[inline(always)]
pub(crate) fn take_i32(input: &mut &[u8]) -> Result<i32, VarintFault> {
    match *input {
        [a, rest @ ..] if *a < 0x80 => {
            *input = rest;
            Ok(unzigzag32(u32::from(*a)))
        }
        [a, b, rest @ ..] if *b < 0x80 => {
            *input = rest;
            Ok(unzigzag32(u32::from(*a & 0x7f) | u32::from(*b) << 7))
        }
        _ => take_long::<5>(input).map(|raw| unzigzag32(raw as u32)),
    }
}

/// Takes a zig-zag 64-bit number off the front of `input`.
#[inline(always)]
pub(crate) fn take_i64(input: &mut &[u8]) -> Result<i64, VarintFault> {
    match *input {
        [a, rest @ ..] if *a < 0x80 => {
            *input = rest;
            Ok(unzigzag64(u64::from(*a)))
        }
        [a, b, rest @ ..] if *b < 0x80 => {
            *input = rest;
            Ok(unzigzag64(u64::from(*a & 0x7f) | u64::from(*b) << 7))
        }
        _ => take_long::<10>(input).map(unzigzag64),
    }
}

/// Takes an unsigned 32-bit number (no zig-zag) off the front of `input`.
pub(crate) fn take_u32(input: &mut &[u8]) -> Result<u32, VarintFault> {
    take_long::<5>(input).map(|raw| raw as u32)
}

fn take_long<const BYTES: usize>(input: &mut &[u8]) -> Result<u64, VarintFault> {
    let mut value = 0u64;
    for (i, byte) in input.iter().take(BYTES).enumerate() {
        // The tenth group has one bit of room; `<<` drops the others, as it does above 32 bits in the caller's cast.
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            *input = &input[i + 1..];
            return Ok(value);
        }
    }
    Err(if input.len() < BYTES { VarintFault::End } else { VarintFault::Overlong })
}

/// Eight bytes, from which numbers of three bytes at most are taken without looking at their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window(u64);

impl Window {
    /// The bytes from `at` on, if there are so many.
    #[inline(always)]
    #[expect(clippy::little_endian_bytes, reason = "the first byte is the lowest")]
    pub(crate) fn at(bytes: &[u8], at: usize) -> Option<Window> {
        bytes.get(at..at + 8)?.first_chunk().map(|word| Window(u64::from_le_bytes(*word)))
    }

    /// Takes a byte; `at` goes with it.
    #[inline(always)]
    pub(crate) fn byte(&mut self, at: &mut usize) -> u8 {
        let byte = self.0 as u8;
        self.0 >>= 8;
        *at += 1;
        byte
    }

    /// Takes a byte and three numbers, of which it gives the first and the third, zig-zag still, if these two have one byte each
    /// and the one between them two at most: all in one look at five bytes, so not more than three may be taken before. Else takes
    /// nothing.
    #[inline(always)]
    pub(crate) fn take_front(&mut self, at: &mut usize) -> Option<(u32, u32)> {
        let word = self.0;
        let (third, taken) = match word & 0x80_8080_8000 {
            0 | 0x80_0000_0000 => (word >> 24, 4),
            0x80_0000 => (word >> 32, 5),
            _ => return None,
        };
        self.0 = word >> (8 * taken);
        *at += taken;
        Some(((word >> 8 & 0x7f) as u32, (third & 0x7f) as u32))
    }

    /// Takes a number, zig-zag still; `None` where it is longer than three bytes. Not more than eight bytes may be taken.
    #[inline(always)]
    pub(crate) fn take(&mut self, at: &mut usize) -> Option<u32> {
        let word = self.0;
        if word & 0x80 == 0 {
            self.0 = word >> 8;
            *at += 1;
            Some((word & 0x7f) as u32)
        } else if word & 0x8000 == 0 {
            self.0 = word >> 16;
            *at += 2;
            Some((word & 0x7f | word >> 1 & 0x3f80) as u32)
        } else if word & 0x80_0000 == 0 {
            self.0 = word >> 24;
            *at += 3;
            Some((word & 0x7f | word >> 1 & 0x3f80 | word >> 2 & 0x1f_c000) as u32)
        } else {
            None
        }
    }
}

#[inline(always)]
pub(crate) const fn unzigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

#[inline(always)]
const fn unzigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[inline(always)]
const fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The bytes that `value` takes, 1 to 10. A 32-bit number takes as many as the same number in 64 bits.
#[inline(always)]
pub(crate) const fn size(value: i64) -> usize {
    let bits = 64 - (zigzag64(value) | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}

/// Writes `value` at `*at` and moves `*at` behind it. The caller has seen to [`size`] bytes there.
#[inline(always)]
pub(crate) fn put(into: &mut [u8], at: &mut usize, value: i64) {
    put_raw(into, at, zigzag64(value));
}

/// A number of one or two bytes, and what stands in front of it, in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Short {
    /// The first byte lowest; zeroes behind the last.
    word: u32,
    len: usize,
}

impl Short {
    /// The numbers from 0 up to this one take one byte or two.
    pub(crate) const END: usize = 1 << 13;
    /// Null: -1.
    pub(crate) const NULL: Short = Short { word: 1, len: 1 };
    /// The bytes that [`put`](Short::put) writes.
    pub(crate) const ROOM: usize = 4;

    /// A number below [`END`](Short::END).
    #[inline(always)]
    pub(crate) const fn new(value: usize) -> Short {
        let raw = (value as u32) << 1;
        // The bits from the seventh on move up by one place, where the low byte's mark stands.
        if raw < 0x80 {
            Short { word: raw, len: 1 }
        } else {
            Short { word: raw + (raw & 0x3f80) + 0x80, len: 2 }
        }
    }

    /// The same behind one more byte.
    #[inline(always)]
    pub(crate) const fn behind(self, byte: u8) -> Short {
        Short { word: self.word << 8 | byte as u32, len: self.len + 1 }
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// Writes it at `*at`, zeroes behind it, [`ROOM`](Short::ROOM) bytes in all, and moves `*at` behind it.
    #[inline(always)]
    #[expect(clippy::little_endian_bytes, reason = "the first byte is the lowest")]
    pub(crate) fn put(self, into: &mut [u8], at: &mut usize) {
        into[*at..*at + Short::ROOM].copy_from_slice(&self.word.to_le_bytes());
        *at += self.len;
    }
}

#[inline(always)]
fn put_raw(into: &mut [u8], at: &mut usize, mut raw: u64) {
    while raw >= 0x80 {
        into[*at] = raw as u8 | 0x80;
        *at += 1;
        raw >>= 7;
    }
    into[*at] = raw as u8;
    *at += 1;
}

/// Appends `value` without zig-zag.
pub(crate) fn push_u32(into: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn i32_of(bytes: &[u8]) -> Result<(i32, usize), VarintFault> {
        let mut rest = bytes;
        take_i32(&mut rest).map(|value| (value, bytes.len() - rest.len()))
    }

    fn i64_of(bytes: &[u8]) -> Result<(i64, usize), VarintFault> {
        let mut rest = bytes;
        take_i64(&mut rest).map(|value| (value, bytes.len() - rest.len()))
    }

    fn encoded(value: i64) -> Vec<u8> {
        let mut bytes = [0; 10];
        let mut at = 0;
        put(&mut bytes, &mut at, value);
        assert_eq!(at, size(value));
        bytes[..at].to_vec()
    }

    #[test]
    fn fmt_14_overlong_varints_are_errors_and_excess_bits_are_dropped() {
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok((i32::MIN, 5)));
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Ok((i32::MIN, 5)));
        assert_eq!(i32_of(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(VarintFault::Overlong));
        assert_eq!(i32_of(&[0xff]), Err(VarintFault::End));
        assert_eq!(i32_of(&[]), Err(VarintFault::End));
        let nines = |last: &[u8]| [&[0xff; 9][..], last].concat();
        assert_eq!(i64_of(&nines(&[0x01])), Ok((i64::MIN, 10)));
        assert_eq!(i64_of(&nines(&[0x02])), Ok((i64::from_be_bytes([0xc0, 0, 0, 0, 0, 0, 0, 0]), 10)));
        assert_eq!(i64_of(&nines(&[0xff, 0x00])), Err(VarintFault::Overlong));
        assert_eq!(i64_of(&nines(&[0x80])), Err(VarintFault::Overlong));
        assert_eq!(i64_of(&[]), Err(VarintFault::End));
    }

    #[test]
    fn format_edge_135_non_minimal_and_cut_varints() {
        assert_eq!(i32_of(&[0xfe, 0xff, 0xff, 0xff, 0x1f]), Ok((i32::MAX, 5)));
        assert_eq!(i32_of(&[0x80, 0x80, 0x80, 0x80, 0x00]), Ok((0, 5)));
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Err(VarintFault::Overlong));
        assert_eq!(i32_of(&[0xff, 0xff, 0xff, 0xff, 0x8f]), Err(VarintFault::Overlong));
        assert_eq!(i32_of(&[0x80, 0x80, 0x80, 0x80]), Err(VarintFault::End));
    }

    #[test]
    fn the_table_of_encodings() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (-1, &[0x01]),
            (1, &[0x02]),
            (-2, &[0x03]),
            (300, &[0xd8, 0x04]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (-65, &[0x81, 0x01]),
            (8191, &[0xfe, 0x7f]),
            (-8192, &[0xff, 0x7f]),
            (8192, &[0x80, 0x80, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            assert_eq!(encoded(value), bytes, "{value}");
            assert_eq!(i64_of(bytes), Ok((value, bytes.len())));
            assert_eq!(i32_of(bytes), Ok((value as i32, bytes.len())));
        }
        assert_eq!(encoded(i64::MAX)[0], 0xfe);
        assert_eq!(encoded(i64::MIN).len(), 10);
    }

    #[test]
    fn short_numbers_are_written_like_all_others() {
        let numbers = (0..Short::END).map(|value| (value as i64, Short::new(value)));
        for (value, short) in numbers.chain([(-1, Short::NULL)]) {
            let written = |short: Short| {
                let (mut bytes, mut at) = ([0xee; 6], 1);
                short.put(&mut bytes, &mut at);
                assert_eq!((bytes[0], bytes[5], at), (0xee, 0xee, 1 + short.len()));
                assert!(bytes[at..5].iter().all(|byte| *byte == 0));
                bytes[1..at].to_vec()
            };
            assert_eq!(written(short), encoded(value), "{value}");
            assert_eq!(written(short.behind(0xa5)), [&[0xa5], &encoded(value)[..]].concat(), "{value}");
        }
    }

    #[test]
    fn every_power_of_two_has_the_size_it_is_written_with() {
        for shift in 0..64 {
            for value in [1i64 << shift, (1i64 << shift).wrapping_sub(1), -(1i64 << shift).wrapping_add(1)] {
                let bytes = encoded(value);
                assert_eq!(i64_of(&bytes), Ok((value, bytes.len())));
            }
        }
    }

    proptest! {
        #[test]
        fn any_eleven_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let _ = i32_of(&bytes);
            let _ = i64_of(&bytes);
            let mut rest = &bytes[..];
            let _ = take_u32(&mut rest);
        }

        #[test]
        fn a_window_takes_what_any_other_reader_takes(bytes in proptest::collection::vec(any::<u8>(), 8..12)) {
            let mut at = 0;
            let taken = Window::at(&bytes, 0).and_then(|mut window| window.take(&mut at));
            match i32_of(&bytes) {
                Ok((value, len @ 1..=3)) => prop_assert_eq!((taken.map(unzigzag32), at), (Some(value), len)),
                _ => prop_assert_eq!(taken, None),
            }
            prop_assert!(Window::at(&bytes, bytes.len() - 7).is_none());
        }

        #[test]
        fn a_front_is_taken_as_number_by_number(bytes in any::<[u8; 8]>(), short in any::<bool>()) {
            let mut bytes = bytes;
            if short {
                bytes[1] &= 0x7f;
                bytes[3] &= 0x7f;
                bytes[4] &= 0x7f;
            }
            let (mut at, mut place) = (0, 0);
            let mut window = Window::at(&bytes, 0).unwrap();
            let mut rest = window;
            rest.byte(&mut place);
            let (first, second) = (rest.take(&mut place), rest.take(&mut place));
            let third = Window::at(&[&bytes[place.min(8)..], &[0; 8]].concat(), 0).unwrap().take(&mut place);
            let front = window.take_front(&mut at);
            prop_assert!(front.is_some() || !short);
            if let Some((one, three)) = front {
                prop_assert_eq!((Some(one), Some(three), at), (first, third, place));
                prop_assert!(second.is_some() && at <= 5);
                // What is left is what stands behind.
                prop_assert_eq!(window.byte(&mut at), bytes[place]);
            }
        }

        #[test]
        fn what_is_written_is_read(value in any::<i64>()) {
            let bytes = encoded(value);
            prop_assert_eq!(i64_of(&bytes), Ok((value, bytes.len())));
            let small = value as i32;
            let bytes = encoded(i64::from(small));
            prop_assert_eq!(i32_of(&bytes), Ok((small, bytes.len())));
        }
    }
}
