//! Four functions over the bytes of a batch of events: the compiled version of `gapless.core.stream.batch_bytes`.
//!
//! That module is the specification, and says what each function promises. Where this one finds something wrong it
//! only raises ValueError: gapless then lets the version in Python judge, which says in words what is wrong.

mod msgpack;

use std::collections::HashMap;

use msgpack::{Key, Reader, Value};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

const PAIR: usize = 8;
const ROW: usize = 16;

fn wrong<T>(what: &'static str) -> PyResult<T> {
    Err(PyValueError::new_err(what))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// The events of one blob: each with the length of its body. Nothing after the first that is cut off.
struct Events<'a> {
    blob: &'a [u8],
    pairs: std::slice::ChunksExact<'a, u8>,
    at: usize,
}

impl<'a> Events<'a> {
    fn new(blob: &'a [u8], lengths: &'a [u8]) -> PyResult<Self> {
        let pairs = lengths.chunks_exact(PAIR);
        let sum: usize = pairs.clone().map(|pair| u32_at(pair, 0)).sum();
        if !pairs.remainder().is_empty() || sum != blob.len() {
            return wrong("the lengths of the events do not add up to the batch");
        }
        Ok(Events { blob, pairs, at: 0 })
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (&'a [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.pairs.next()?;
        let start = self.at;
        self.at += u32_at(pair, 0);
        Some((&self.blob[start..self.at], u32_at(pair, 4)))
    }
}

/// check(blob, lengths, most) -> (topic or list of topics, whether any event has extras)
#[pyfunction]
fn check<'py>(py: Python<'py>, blob: &[u8], lengths: &[u8], most: usize) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let mut topics: Vec<&[u8]> = Vec::new();
    let mut first: Option<&[u8]> = None;
    let mut any_extras = false;
    for (count, (event, body)) in Events::new(blob, lengths)?.enumerate() {
        let found = if event.len() <= most { Reader::new(event).event(body) } else { None };
        let Some((topic, extras)) = found else {
            return wrong("an event is malformed, or too long");
        };
        any_extras |= extras;
        let one = *first.get_or_insert(topic);
        if !topics.is_empty() {
            topics.push(topic);
        } else if topic != one {
            topics.resize(count, one);
            topics.push(topic);
        }
    }
    let Some(one) = first else { return wrong("a batch is empty") };
    if topics.is_empty() {
        return Ok((text(py, one)?.into_any(), any_extras));
    }
    let each = topics.into_iter().map(|topic| text(py, topic)).collect::<PyResult<Vec<_>>>()?;
    Ok((PyList::new(py, each)?.into_any(), any_extras))
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text)),
        Err(_) => wrong("a text is no UTF-8"),
    }
}

/// The events that have one value: most values have one, or few.
struct Group<'a> {
    value: Value<'a>,
    places: Vec<usize>,
}

/// column(blobs, lengths, name, bits) -> (groups, true, false, null, whether any value is a float)
#[pyfunction]
#[allow(clippy::type_complexity)]
fn column<'py>(
    py: Python<'py>,
    blobs: Vec<Bound<'py, PyBytes>>,
    lengths: Vec<Bound<'py, PyBytes>>,
    name: &str,
    bits: &Bound<'py, PyList>,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, bool)> {
    if blobs.len() != lengths.len() {
        return wrong("there are not as many lengths as blobs");
    }
    let mut place = 0;
    let mut floats = false;
    let (mut yes, mut no, mut null) = (Vec::new(), Vec::new(), Vec::new());
    let mut groups: Vec<Group> = Vec::new();
    let mut index: HashMap<Key, usize> = HashMap::new();
    for (blob, lengths) in blobs.iter().zip(&lengths) {
        for (event, _) in Events::new(blob.as_bytes(), lengths.as_bytes())? {
            let Some(found) = Reader::new(event).property(name.as_bytes()) else {
                return wrong("an event is malformed");
            };
            match found {
                None => null.push(place),
                Some(Value::Flag(true)) => yes.push(place),
                Some(Value::Flag(false)) => no.push(place),
                Some(value) => {
                    floats |= matches!(value, Value::Real(_));
                    let at = *index.entry(value.key()).or_insert(groups.len());
                    if at == groups.len() {
                        groups.push(Group { value, places: Vec::new() });
                    }
                    groups[at].places.push(place);
                }
            }
            place += 1;
        }
    }
    let from_bytes = py.get_type::<PyInt>().getattr(intern!(py, "from_bytes"))?;
    let mask = |places: &[usize]| -> PyResult<Bound<'py, PyAny>> {
        match places {
            [] => Ok(0_u8.into_pyobject(py)?.into_any()),
            [one] => bits.get_item(*one),
            [.., last] => {
                let mut bytes = vec![0u8; last / 8 + 1];
                for place in places {
                    bytes[place / 8] |= 1 << (place % 8);
                }
                from_bytes.call1((PyBytes::new(py, &bytes), intern!(py, "little")))
            }
        }
    };
    let found = PyDict::new(py);
    for group in &groups {
        let value = match group.value {
            Value::Whole(number) => number.into_pyobject(py)?.into_any(),
            Value::Real(number) => PyFloat::new(py, number).into_any(),
            Value::Text(bytes) => text(py, bytes)?.into_any(),
            Value::Flag(_) => unreachable!("flags have masks of their own"),
        };
        found.set_item(value, mask(&group.places)?)?;
    }
    Ok((found, mask(&yes)?, mask(&no)?, mask(&null)?, floats))
}

/// gather(blobs, lengths, ticks, mask) -> count, rows and events of the selected events
#[pyfunction]
fn gather<'py>(
    py: Python<'py>,
    blobs: Vec<Bound<'py, PyBytes>>,
    lengths: Vec<Bound<'py, PyBytes>>,
    ticks: &[u8],
    mask: &Bound<'py, PyInt>,
) -> PyResult<Bound<'py, PyBytes>> {
    let count = ticks.len() / 8;
    let pairs: usize = lengths.iter().map(|each| each.as_bytes().len() / PAIR).sum();
    if blobs.len() != lengths.len() || pairs != count || ticks.len() % 8 != 0 {
        return wrong("there are not as many ticks as events");
    }
    let wide: usize = mask.call_method0(intern!(py, "bit_length"))?.extract()?;
    if wide > count {
        return wrong("the mask selects more than there is");
    }
    let chosen = mask.call_method1(intern!(py, "to_bytes"), (count.div_ceil(8), intern!(py, "little")))?;
    let chosen = chosen.cast::<PyBytes>()?.as_bytes();
    let selected = chosen.iter().map(|byte| byte.count_ones() as usize).sum();
    let mut events: Vec<&[u8]> = Vec::with_capacity(selected);
    let mut rows: Vec<u8> = Vec::with_capacity(ROW * selected);
    let (mut place, mut size) = (0, 0);
    for (blob, lengths) in blobs.iter().zip(&lengths) {
        for (event, body) in Events::new(blob.as_bytes(), lengths.as_bytes())? {
            if chosen[place / 8] >> (place % 8) & 1 == 1 {
                rows.extend_from_slice(&ticks[8 * place..8 * place + 8]);
                rows.extend_from_slice(&(event.len() as u32).to_le_bytes());
                rows.extend_from_slice(&(body as u32).to_le_bytes());
                size += event.len();
                events.push(event);
            }
            place += 1;
        }
    }
    let begin = 4 + rows.len();
    PyBytes::new_with(py, begin + size, |payload| {
        payload[..4].copy_from_slice(&(events.len() as u32).to_le_bytes());
        payload[4..begin].copy_from_slice(&rows);
        let mut at = begin;
        for event in events {
            payload[at..at + event.len()].copy_from_slice(event);
            at += event.len();
        }
        Ok(())
    })
}

/// encode(topic, bodies, properties, most) -> (lengths, blob), or None where a message has to be looked at by itself
#[pyfunction]
fn encode<'py>(
    py: Python<'py>,
    topic: &Bound<'py, PyString>,
    bodies: &Bound<'py, PyList>,
    properties: &Bound<'py, PyList>,
    most: usize,
) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
    if bodies.len() != properties.len() {
        return wrong("there are not as many properties as bodies");
    }
    let Ok(topic) = topic.to_str() else { return Ok(None) };
    let mut head = vec![0x94];
    msgpack::put_text(&mut head, topic);
    let mut lengths: Vec<u8> = Vec::with_capacity(PAIR * bodies.len());
    let mut blob: Vec<u8> = Vec::new();
    for (body, pairs) in bodies.iter().zip(properties.iter()) {
        let (Ok(body), Ok(pairs)) = (body.cast_exact::<PyBytes>(), pairs.cast_exact::<PyDict>()) else {
            return Ok(None);
        };
        let body = body.as_bytes();
        let start = blob.len();
        blob.extend_from_slice(&head);
        msgpack::put_map(&mut blob, pairs.len());
        for (name, value) in pairs.iter() {
            let Ok(name) = name.cast_exact::<PyString>() else { return Ok(None) };
            match name.to_str() {
                Ok(name) if !name.is_empty() => msgpack::put_text(&mut blob, name),
                _ => return Ok(None),
            }
            if !put_value(&mut blob, &value) {
                return Ok(None);
            }
        }
        blob.push(0xc0);
        if body.len() > most {
            return Ok(None);
        }
        msgpack::put_body(&mut blob, body);
        let length = blob.len() - start;
        if length > most || u32::try_from(length).is_err() {
            return Ok(None);
        }
        lengths.extend_from_slice(&(length as u32).to_le_bytes());
        lengths.extend_from_slice(&(body.len() as u32).to_le_bytes());
    }
    Ok(Some((PyBytes::new(py, &lengths), PyBytes::new(py, &blob))))
}

/// Whether it was one of the four plain types, and a value that may be sent.
fn put_value(blob: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> bool {
    if let Ok(text) = value.cast_exact::<PyString>() {
        let Ok(text) = text.to_str() else { return false };
        msgpack::put_text(blob, text);
    } else if let Ok(number) = value.cast_exact::<PyInt>() {
        let Ok(number) = number.extract::<i64>() else { return false };
        msgpack::put_whole(blob, number);
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        let number = number.value();
        if !number.is_finite() {
            return false;
        }
        blob.push(0xcb);
        blob.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(flag) = value.cast_exact::<PyBool>() {
        blob.push(if flag.is_true() { 0xc3 } else { 0xc2 });
    } else {
        return false;
    }
    true
}

#[pymodule]
fn gapless_fast(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(column, module)?)?;
    module.add_function(wrap_pyfunction!(gather, module)?)?;
    module.add_function(wrap_pyfunction!(encode, module)?)
}
