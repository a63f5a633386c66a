//! As much of msgpack as an event has: `[topic, properties, extras, body]`.
//!
//! Everything that reads returns None where the bytes are not what they must be, or end too early.

const PRIORITY_MAX: i64 = 9;
/// In milliseconds since 1970: the year 10000.
const EXPIRATION_END: i64 = 253_402_300_800_000;
const PARTS: usize = 4;
const EXTRAS_MAX: usize = 6;

/// The value of a property. A text is checked where it is used.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(&'a [u8]),
}

/// What Python's `==` takes for one: 1 and 1.0 are the same number.
#[derive(PartialEq, Eq, Hash)]
pub enum Key<'a> {
    Flag(bool),
    Whole(i64),
    Real(u64),
    Text(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn key(&self) -> Key<'a> {
        match *self {
            Value::Flag(flag) => Key::Flag(flag),
            Value::Whole(number) => Key::Whole(number),
            // -2^63 and 2^63 are floats without rounding; the second is no i64.
            Value::Real(number) if number.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&number) => {
                Key::Whole(number as i64)
            }
            Value::Real(number) => Key::Real(number.to_bits()),
            Value::Text(bytes) => Key::Text(bytes),
        }
    }
}

pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(event: &'a [u8]) -> Self {
        Reader { left: event }
    }

    /// Checks a whole event, with a body of this length and nothing after it: its topic, and whether it has extras.
    pub fn event(&mut self, body: usize) -> Option<(&'a [u8], bool)> {
        let topic = self.topic()?;
        std::str::from_utf8(topic).ok()?;
        for _ in 0..self.map()? {
            let name = self.text()?;
            if name.is_empty() || std::str::from_utf8(name).is_err() {
                return None;
            }
            if let Value::Text(text) = self.value()? {
                std::str::from_utf8(text).ok()?;
            }
        }
        let extras = self.extras()?;
        (self.body()?.len() == body && self.left.is_empty()).then_some((topic, extras))
    }

    /// Finds a property of an event that was checked: the last one of this name, as a decoder has it.
    pub fn property(&mut self, name: &[u8]) -> Option<Option<Value<'a>>> {
        self.topic()?;
        let mut found = None;
        for _ in 0..self.map()? {
            let is_it = self.text()? == name;
            let value = self.value()?;
            if is_it {
                found = Some(value);
            }
        }
        Some(found)
    }

    fn topic(&mut self) -> Option<&'a [u8]> {
        if self.array()? != PARTS {
            return None;
        }
        self.text()
    }

    fn extras(&mut self) -> Option<bool> {
        if self.left.first() == Some(&0xc0) {
            self.byte()?;
            return Some(false);
        }
        let count = self.array()?;
        if count > EXTRAS_MAX {
            return None;
        }
        for at in 0..count {
            let right = match (at, self.value()?) {
                (0, Value::Whole(priority)) => (0..=PRIORITY_MAX).contains(&priority),
                (1, Value::Whole(expiration)) => (0..EXPIRATION_END).contains(&expiration),
                (2..=4, Value::Text(text)) => std::str::from_utf8(text).is_ok(),
                (5, Value::Whole(timestamp)) => (0..EXPIRATION_END).contains(&timestamp),
                _ => false,
            };
            if !right {
                return None;
            }
        }
        Some(true)
    }

    fn value(&mut self) -> Option<Value<'a>> {
        let tag = *self.left.first()?;
        if matches!(tag, 0xa0..=0xbf | 0xd9..=0xdb) {
            return self.text().map(Value::Text);
        }
        self.byte()?;
        Some(match tag {
            0x00..=0x7f => Value::Whole(tag.into()),
            0xe0..=0xff => Value::Whole((tag as i8).into()),
            0xc2 => Value::Flag(false),
            0xc3 => Value::Flag(true),
            0xca => real(f32::from_be_bytes(self.exact()?).into())?,
            0xcb => real(f64::from_be_bytes(self.exact()?))?,
            0xcc => Value::Whole(self.byte()?.into()),
            0xcd => Value::Whole(u16::from_be_bytes(self.exact()?).into()),
            0xce => Value::Whole(u32::from_be_bytes(self.exact()?).into()),
            0xcf => Value::Whole(u64::from_be_bytes(self.exact()?).try_into().ok()?),
            0xd0 => Value::Whole((self.byte()? as i8).into()),
            0xd1 => Value::Whole(i16::from_be_bytes(self.exact()?).into()),
            0xd2 => Value::Whole(i32::from_be_bytes(self.exact()?).into()),
            0xd3 => Value::Whole(i64::from_be_bytes(self.exact()?)),
            _ => return None,
        })
    }

    fn array(&mut self) -> Option<usize> {
        match self.byte()? {
            tag @ 0x90..=0x9f => Some((tag & 0x0f).into()),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => None,
        }
    }

    fn map(&mut self) -> Option<usize> {
        match self.byte()? {
            tag @ 0x80..=0x8f => Some((tag & 0x0f).into()),
            0xde => self.number(2),
            0xdf => self.number(4),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = match self.byte()? {
            tag @ 0xa0..=0xbf => (tag & 0x1f).into(),
            0xd9 => self.number(1)?,
            0xda => self.number(2)?,
            0xdb => self.number(4)?,
            _ => return None,
        };
        self.take(length)
    }

    fn body(&mut self) -> Option<&'a [u8]> {
        let length = match self.byte()? {
            0xc4 => self.number(1)?,
            0xc5 => self.number(2)?,
            0xc6 => self.number(4)?,
            _ => return None,
        };
        self.take(length)
    }

    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.take(width)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(first)
    }

    fn exact<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        if length > self.left.len() {
            return None;
        }
        let (taken, rest) = self.left.split_at(length);
        self.left = rest;
        Some(taken)
    }
}

fn real<'a>(number: f64) -> Option<Value<'a>> {
    number.is_finite().then_some(Value::Real(number))
}

// The shortest form of everything, as the encoder in Python has it: both write the same bytes.

pub fn put_whole(out: &mut Vec<u8>, number: i64) {
    match number {
        0..=0x7f => out.push(number as u8),
        -32..=-1 => out.push(number as i8 as u8),
        0x80..=0xff => put(out, 0xcc, &[number as u8]),
        0x100..=0xffff => put(out, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => put(out, 0xce, &(number as u32).to_be_bytes()),
        0x1_0000_0000.. => put(out, 0xcf, &(number as u64).to_be_bytes()),
        -0x80..=-33 => put(out, 0xd0, &(number as i8).to_be_bytes()),
        -0x8000..=-0x81 => put(out, 0xd1, &(number as i16).to_be_bytes()),
        -0x8000_0000..=-0x8001 => put(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => put(out, 0xd3, &number.to_be_bytes()),
    }
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        length @ 0..=0x1f => out.push(0xa0 | length as u8),
        length @ 0x20..=0xff => put(out, 0xd9, &[length as u8]),
        length @ 0x100..=0xffff => put(out, 0xda, &(length as u16).to_be_bytes()),
        length => put(out, 0xdb, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(text.as_bytes());
}

pub fn put_map(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=0x0f => out.push(0x80 | length as u8),
        0x10..=0xffff => put(out, 0xde, &(length as u16).to_be_bytes()),
        _ => put(out, 0xdf, &(length as u32).to_be_bytes()),
    }
}

pub fn put_body(out: &mut Vec<u8>, body: &[u8]) {
    match body.len() {
        length @ 0..=0xff => put(out, 0xc4, &[length as u8]),
        length @ 0x100..=0xffff => put(out, 0xc5, &(length as u16).to_be_bytes()),
        length => put(out, 0xc6, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(body);
}

fn put(out: &mut Vec<u8>, tag: u8, number: &[u8]) {
    out.push(tag);
    out.extend_from_slice(number);
}
