//! Sources from Python: objects with `size` and `read(offset, length)`, and plain files, which are read directly.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::rope::{Piece, SourceId};
use wire::source::{RopeSource, Source};
use wire::{Kind, Result, WireError, elements};

use crate::cached::unfilled;
use crate::errors;
use crate::rope::Rope;

/// A computed source: a `RangeSource` that computes its bytes from other sources when they are read.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Computed(pub(crate) Arc<elements::Computed>);

/// A `RangeSource` of Python. Files and a `Computed` are read without Python, other sources through their `read`.
pub(crate) struct PySource {
    object: Py<PyAny>,
    file: Option<Arc<File>>,
    computed: Option<Arc<elements::Computed>>,
    size: u64,
}

impl PySource {
    /// Wraps `object`, which has `size` and `read`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let size = object.getattr("size")?.extract()?;
        let file = file_of(object).unwrap_or_default();
        let computed = object.cast::<Computed>().ok().map(|computed| Arc::clone(&computed.get().0));
        Ok(Self { object: object.clone().unbind(), file, computed, size })
    }

    fn read_file(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let inside = offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.size);
        let file = self.file.as_ref().filter(|_| inside);
        file.is_some_and(|file| file.read_exact_at(buffer, offset).is_ok())
    }

    /// Fills `room` from a plain file; returns false if the source is not a file or does not have all bytes.
    #[allow(unsafe_code, reason = "the standard library reads into initialised memory only")]
    fn fill_from_file(&self, offset: u64, room: &mut [MaybeUninit<u8>]) -> bool {
        let inside = offset.checked_add(room.len() as u64).is_some_and(|end| end <= self.size);
        let Some(file) = self.file.as_ref().filter(|_| inside) else { return false };
        let mut done = 0;
        while let Some(rest) = room.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Ok(at) = libc::off_t::try_from(offset + done as u64) else { return false };
            // SAFETY: the kernel writes at most `rest.len()` bytes into memory that is ours alone.
            let count = unsafe { libc::pread(file.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), at) };
            match usize::try_from(count) {
                Ok(0) => return false,
                Ok(count) => done += count,
                Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Calls Python's `read` and passes its result to `take`. A failed direct read also calls this, so that Python
    /// raises the error.
    fn ask<T>(&self, offset: u64, len: usize, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        Python::attach(|py| {
            let answer = self.object.bind(py).call_method1("read", (offset, len))?;
            let bytes = answer.cast::<PyBytes>()?.as_bytes();
            if bytes.len() == len {
                return Ok(take(bytes));
            }
            let message = format!("a source returned {} bytes instead of {len}", bytes.len());
            let class = py.import("protoslice.errors")?.getattr("StorageError")?;
            Err(PyErr::from_value(class.call1((message, offset))?))
        })
        .map_err(|error: PyErr| WireError::from_source(error))
    }
}

impl Source for PySource {
    fn len(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        if let Some(computed) = &self.computed {
            return computed.read(offset, len);
        }
        let Some(_) = self.file else {
            return self.ask(offset, len, |bytes| Cow::Owned(bytes.to_vec()));
        };
        let mut bytes = vec![0; len.min(usize::try_from(self.size).unwrap_or(len))];
        if bytes.len() == len && self.read_file(offset, &mut bytes) {
            return Ok(Cow::Owned(bytes));
        }
        self.ask(offset, len, |bytes| Cow::Owned(bytes.to_vec()))
    }

    fn stored(&self) -> u64 {
        self.computed.as_ref().map_or(self.size, |computed| computed.stored())
    }

    fn stride(&self) -> u64 {
        match &self.computed {
            Some(computed) => computed.stride(),
            None if self.file.is_some() => 1 << 16,
            None => 1 << 20,
        }
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some(computed) = &self.computed {
            buffer.fill(0); // the buffer may have been used before
            return computed.read_into(offset, buffer);
        }
        if self.read_file(offset, buffer) {
            return Ok(());
        }
        self.ask(offset, buffer.len(), |bytes| buffer.copy_from_slice(bytes))
    }
}

/// A source that checks Python's signals (Ctrl-C) and calls `progress` during reads, at most once per `PERIOD`.
pub(crate) struct Watched<'a> {
    inner: &'a dyn Source,
    progress: Option<Py<PyAny>>,
    next: Cell<Instant>,
    at: Cell<u64>,
}

impl<'a> Watched<'a> {
    /// The shortest time between two checks of signals and reports of progress.
    const PERIOD: Duration = Duration::from_millis(100);

    /// Watches `inner` from now on; `progress` is called with the offset of the latest read and the size, in bytes.
    pub(crate) fn new(inner: &'a dyn Source, progress: Option<Py<PyAny>>) -> Self {
        Self { inner, progress, next: Cell::new(Instant::now() + Self::PERIOD), at: Cell::new(0) }
    }

    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        let told = self.progress.as_ref().map(|progress| progress.call1(py, (self.at.get(), self.inner.len())));
        told.transpose().map(drop)
    }
}

impl Source for Watched<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.at.set(offset);
        self.carry_on()?;
        self.inner.read(offset, len)
    }

    fn stride(&self) -> u64 {
        self.inner.stride()
    }

    fn carry_on(&self) -> Result<()> {
        let now = Instant::now();
        if now < self.next.get() {
            return Ok(());
        }
        self.next.set(now + Self::PERIOD);
        Python::attach(|py| self.tell(py)).map_err(WireError::from_source)
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.at.set(offset);
        self.carry_on()?;
        self.inner.read_into(offset, buffer)
    }
}

/// The open file of an `object` whose class itself defines `core_file`; None for any other object or without an open
/// file.
fn file_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<File>>> {
    // A class only vouches for itself: a subclass that inherits `core_file` may have a `read` that returns other bytes.
    if !object.get_type().getattr("__dict__")?.contains("core_file")? {
        return Ok(None);
    }
    let given = object.call_method0("core_file")?;
    Ok(given.cast::<CoreFile>().ok().map(|file| Arc::clone(&file.get().0)))
}

/// A file that is read without the GIL and without a call into Python.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct CoreFile(Arc<File>);

#[pymethods]
impl CoreFile {
    /// Opens the file at `path` if it has this device and inode number; else None.
    #[staticmethod]
    fn open(path: PathBuf, device: u64, inode: u64) -> PyResult<Option<Self>> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        Ok(((device, inode) == (found.dev(), found.ino())).then(|| Self(Arc::new(file))))
    }
}

/// The sources of a rope, by number; None once closed.
#[pyclass(frozen, module = "protoslice._core")]
pub(crate) struct Sources(Mutex<Option<Arc<Vec<PySource>>>>);

#[pymethods]
impl Sources {
    #[new]
    fn py_new(sources: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        Self::new(&sources)
    }

    /// The `length` bytes of `rope` from `offset` on. Files are read without the GIL.
    fn read<'py>(
        &self,
        py: Python<'py>,
        rope: &Bound<'py, Rope>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = usize::try_from(length)
            .map_err(|_| PyOverflowError::new_err("the range does not fit into memory: it has too many bytes"))?;
        let rope = &rope.get().0;
        // The memory is new, because another thread could write to a buffer of the caller while the GIL is released.
        let (bytes, room) = unfilled(py, length)?;
        py.detach(|| self.fill(rope, offset, room)).map_err(|error| errors::raise(py, error))?;
        Ok(bytes)
    }

    /// Releases the sources, and with them the files opened for reading.
    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Length of an extent, in bytes, from which a file is read into uninitialised memory. Clearing the memory would take a
/// third of the time of a read from the page cache.
const LARGE: usize = 1 << 14;

impl Sources {
    /// Fills `room` with the bytes of `rope` from `offset` on, or fails.
    fn fill(&self, rope: &wire::Rope, offset: u64, room: &mut [MaybeUninit<u8>]) -> Result<()> {
        let held = self.held()?;
        let slice = rope.slice(offset..offset.saturating_add(room.len() as u64));
        // Pieces from `start` to `end` are read together, as soon as a large piece or the end of the rope follows.
        let (mut start, mut end) = (0, 0);
        for piece in slice.pieces() {
            let next = end + usize::try_from(piece.len()).unwrap_or(usize::MAX - end);
            if let Piece::Extent { source, offset: at, .. } = piece
                && next - end >= LARGE
                && let Some(part) = room.get_mut(end..next)
                && held.get(source.0 as usize).is_some_and(|source| source.fill_from_file(at, part))
            {
                self.fill_cleared(rope, offset + start as u64, room.get_mut(start..end))?;
                start = next;
            }
            end = next;
        }
        self.fill_cleared(rope, offset + start as u64, room.get_mut(start..))
    }

    /// Clears `room` and fills it from sources of any kind, which must never see uninitialised memory.
    #[allow(unsafe_code, reason = "a slice of cleared memory has no safe type conversion")]
    fn fill_cleared(&self, rope: &wire::Rope, offset: u64, room: Option<&mut [MaybeUninit<u8>]>) -> Result<()> {
        let Some(room) = room.filter(|room| !room.is_empty()) else { return Ok(()) };
        room.fill(MaybeUninit::new(0));
        // SAFETY: all of `room` was initialised by the line above.
        let cleared = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
        self.with(Some(rope), |source| source.read_into(offset, cleared))
    }

    fn held(&self) -> Result<Arc<Vec<PySource>>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        held.ok_or_else(|| WireError::new(Kind::Syntax, "the proto is closed: open it again"))
    }

    pub(crate) fn new(sources: &[Bound<'_, PyAny>]) -> PyResult<Self> {
        let sources = sources.iter().map(PySource::new).collect::<PyResult<_>>()?;
        Ok(Self(Mutex::new(Some(Arc::new(sources)))))
    }

    /// Calls `f` with the bytes of `image`, or of the first source when `image` is None.
    pub(crate) fn with<R>(&self, image: Option<&wire::Rope>, f: impl FnOnce(&dyn Source) -> Result<R>) -> Result<R> {
        self.watched(image, None, f)
    }

    /// Like [`Sources::with`]; `progress` is called with the offset of the latest read and the size.
    pub(crate) fn watched<R>(
        &self,
        image: Option<&wire::Rope>,
        progress: Option<Py<PyAny>>,
        f: impl FnOnce(&dyn Source) -> Result<R>,
    ) -> Result<R> {
        let held = self.held()?;
        let sources: Vec<&dyn Source> = held.iter().map(|source| source as &dyn Source).collect();
        match (image, sources.first()) {
            (None, Some(first)) => f(&Watched::new(*first, progress)),
            (image, _) => {
                let empty = wire::Rope::default();
                f(&Watched::new(&RopeSource::new(image.unwrap_or(&empty), &sources), progress))
            }
        }
    }

    /// The smallest stride of the sources: how many bytes to read at once when many are needed.
    fn stride(&self) -> u64 {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().flat_map(|held| held.iter()).map(PySource::stride).min().unwrap_or(1 << 20)
    }
}

/// A Python rope, `protoslice.sources.ropes.Rope`: extents and literal bytes, and the sources of the extents.
#[derive(FromPyObject)]
pub(crate) struct RopeArgument<'py> {
    core: Bound<'py, Rope>,
    sources: Vec<Bound<'py, PyAny>>,
}

impl RopeArgument<'_> {
    /// The same bytes as a source, which keeps the rope's sources alive.
    pub(crate) fn held(&self) -> PyResult<Arc<Held>> {
        Ok(Arc::new(Held { rope: self.core.get().0.clone(), sources: Sources::new(&self.sources)? }))
    }
}

/// A rope together with the sources of its extents.
pub(crate) struct Held {
    pub(crate) rope: wire::Rope,
    pub(crate) sources: Sources,
}

impl Held {
    /// Calls `f` with the bytes, and lets Python handle its signals during reads.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&dyn Source) -> Result<R>) -> Result<R> {
        self.sources.with(Some(&self.rope), f)
    }
}

impl Source for Held {
    fn len(&self) -> u64 {
        self.rope.len()
    }

    fn read(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>> {
        self.with(|source| source.read(offset, len).map(|bytes| Cow::Owned(bytes.into_owned())))
    }

    fn stride(&self) -> u64 {
        self.sources.stride()
    }

    fn stored(&self) -> u64 {
        let held = self.sources.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let computed = |source: &SourceId| held.as_ref()?.get(source.0 as usize)?.computed.clone();
        let mut counted = HashMap::new();
        let mut plain = self.rope.len();
        for piece in self.rope.pieces() {
            if let Piece::Extent { source, len, .. } = piece
                && let Some(computed) = computed(&source)
            {
                plain -= len;
                counted.insert(source.0, computed.stored());
            }
        }
        counted.into_values().fold(plain, u64::saturating_add)
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.with(|source| source.read_into(offset, buffer))
    }
}
