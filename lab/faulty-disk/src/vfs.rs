//! The functions that SQLite calls.
//!
//! Idea: the usual VFS is copied, with two functions replaced. A file of a faulty disk has a head of
//! our own before the usual file; any other file is the usual one, so that nothing stands between it
//! and SQLite.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::state::State;
use crate::unsynced::Change;

/// The folders of faulty disks.
static DISKS: Mutex<Vec<(PathBuf, Arc<Mutex<State>>)>> = Mutex::new(Vec::new());

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on files in `folder` are on a disk of this state.
pub(crate) fn add(folder: &Path, state: &Arc<Mutex<State>>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    lock(&DISKS).push((folder.to_owned(), Arc::clone(state)));
}

/// From now on files in `folder` are like any other.
pub(crate) fn remove(folder: &Path) {
    lock(&DISKS).retain(|(other, _)| other != folder);
}

fn disk_of(path: &Path) -> Option<Arc<Mutex<State>>> {
    lock(&DISKS).iter().find(|(folder, _)| path.starts_with(folder)).map(|it| Arc::clone(&it.1))
}

fn register() {
    // SAFETY: a null name asks for the default VFS, which lives as long as the process. The copy is
    // never freed and not changed after it is registered.
    unsafe {
        let usual = ffi::sqlite3_vfs_find(ptr::null());
        let ours = Box::leak(Box::new(*usual));
        ours.szOsFile += size_of::<Head>() as c_int;
        ours.pNext = ptr::null_mut();
        ours.zName = c"faulty".as_ptr();
        ours.pAppData = usual.cast();
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        ffi::sqlite3_vfs_register(ours, 1);
    }
}

/// What stands before the usual file.
#[repr(C)]
struct Head {
    file: sqlite3_file,
    /// From [`Box::into_raw`]; freed in [`close`].
    held: *mut Held,
}

/// One open file of a faulty disk.
struct Held {
    disk: Arc<Mutex<State>>,
    /// Its place there.
    place: usize,
}

/// The usual file behind ours.
#[derive(Clone, Copy)]
struct Usual(*mut sqlite3_file);

/// Calls a function of the usual file.
macro_rules! usual {
    ($usual:expr, $method:ident $(, $argument:expr)*) => {{
        let file: Usual = $usual;
        // SAFETY: it was opened by the usual VFS, which sets its table of functions, and is open; what
        // it is handed has come from SQLite, or outlives the call.
        unsafe {
            let call = (*(*file.0).pMethods).$method.expect("the usual VFS has all functions");
            call(file.0 $(, $argument)*)
        }
    }};
}

/// Functions that are the usual file's.
macro_rules! forward {
    ($($name:ident $method:ident ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) $(-> $result)? {
            usual!(behind(file), $method $(, $argument)*)
        })*
    };
}

forward! {
    file_size xFileSize (size: *mut sqlite3_int64) -> c_int;
    lock_file xLock (level: c_int) -> c_int;
    unlock_file xUnlock (level: c_int) -> c_int;
    check_reserved xCheckReservedLock (is_reserved: *mut c_int) -> c_int;
    control xFileControl (what: c_int, argument: *mut c_void) -> c_int;
    sector_size xSectorSize () -> c_int;
    characteristics xDeviceCharacteristics () -> c_int;
    shm_map xShmMap (page: c_int, size: c_int, extend: c_int, at: *mut *mut c_void) -> c_int;
    shm_lock xShmLock (offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier xShmBarrier ();
    shm_unmap xShmUnmap (delete: c_int) -> c_int;
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    // Files are not mapped.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock_file),
    xUnlock: Some(unlock_file),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn behind(file: *mut sqlite3_file) -> Usual {
    // SQLite has allocated a head and a usual file.
    Usual(file.wrapping_byte_add(size_of::<Head>()))
}

fn held<'a>(file: *mut sqlite3_file) -> &'a Held {
    // SAFETY: only files that `open` gave our functions come here, and it set their head; SQLite uses a
    // file on one thread at a time and not after it was closed.
    unsafe { &*(*file.cast::<Head>()).held }
}

impl Usual {
    fn size(self) -> u64 {
        let mut size = 0;
        usual!(self, xFileSize, &raw mut size);
        u64::try_from(size).unwrap_or(0)
    }

    /// What is between `at` and `end`.
    fn bytes(self, at: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        if !bytes.is_empty() {
            usual!(self, xRead, bytes.as_mut_ptr().cast(), bytes.len() as c_int, at as i64);
        }
        bytes
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite hands over the VFS that was registered; a name, if there is one, ends with a zero.
    let (usual, path) = unsafe {
        let usual = (*vfs).pAppData.cast::<sqlite3_vfs>();
        let path = (!name.is_null()).then(|| path_of(CStr::from_ptr(name)));
        (usual, path)
    };
    let disk = path.as_deref().and_then(disk_of);
    let to = if disk.is_some() { behind(file) } else { Usual(file) };
    // SAFETY: SQLite has allocated `szOsFile` bytes: a head and a usual file. The usual VFS sets
    // the functions of a file that it opened; those of one that it did not are null.
    let code = unsafe {
        (*to.0).pMethods = ptr::null();
        (*file).pMethods = ptr::null();
        let open = (*usual).xOpen.expect("the usual VFS has all functions");
        open(usual, name, to.0, flags, out)
    };
    let (Some(disk), Some(path), ffi::SQLITE_OK) = (disk, path, code) else { return code };
    let place = lock(&disk).opened(path, to.size());
    // SAFETY: as above.
    unsafe {
        (*file.cast::<Head>()).held = Box::into_raw(Box::new(Held { disk, place }));
        (*file).pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

fn path_of(name: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name.to_bytes()))
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as in `open`; a file that is removed has a name.
    let (usual, path) = unsafe { ((*vfs).pAppData.cast(), path_of(CStr::from_ptr(name))) };
    if let Some(disk) = disk_of(&path)
        && let Err(code) = lock(&disk).remove(&path)
    {
        return code;
    }
    // SAFETY: as in `open`.
    unsafe {
        let usual: *mut sqlite3_vfs = usual;
        let delete = (*usual).xDelete.expect("the usual VFS has all functions");
        delete(usual, name, sync)
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let code = usual!(behind(file), xClose);
    // SAFETY: it came from `Box::into_raw` in `open`, and SQLite closes a file once.
    drop(unsafe { Box::from_raw((*file.cast::<Head>()).held) });
    code
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    len: c_int,
    at: sqlite3_int64,
) -> c_int {
    if let Err(code) = lock(&held(file).disk).read() {
        return code;
    }
    usual!(behind(file), xRead, to, len, at)
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: sqlite3_int64,
) -> c_int {
    let (held, usual) = (held(file), behind(file));
    let mut disk = lock(&held.disk);
    let (size_before, offset) = (disk.files[held.place].size, at.unsigned_abs());
    let (len, code) = match disk.write(offset, u64::from(len.unsigned_abs()), size_before) {
        Ok(()) => (len.unsigned_abs() as usize, ffi::SQLITE_OK),
        Err(refused) => (refused.written as usize, refused.code),
    };
    if len == 0 {
        return code;
    }
    let end = offset + len as u64;
    let before = usual.bytes(offset, end.min(size_before));
    let written = usual!(usual, xWrite, from, len as c_int, at);
    if written != ffi::SQLITE_OK {
        return written;
    }
    // SAFETY: SQLite hands over that many bytes.
    let after = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec();
    let size_after = size_before.max(end);
    disk.files[held.place].push(Change { at: offset, before, after, size_before, size_after });
    code
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    let (held, usual) = (held(file), behind(file));
    let mut disk = lock(&held.disk);
    if let Err(code) = disk.truncate() {
        return code;
    }
    let (size_before, size_after) = (disk.files[held.place].size, size.unsigned_abs());
    let before = usual.bytes(size_after, size_before);
    let after = Vec::new();
    let change = Change { at: size_after, before, after, size_before, size_after };
    disk.files[held.place].push(change);
    usual!(usual, xTruncate, size)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    let held = held(file);
    if let Err(code) = lock(&held.disk).sync(held.place) {
        return code;
    }
    // Nothing here is lost when this machine loses its power, and a test need not wait for its disk.
    let _ = flags;
    ffi::SQLITE_OK
}
