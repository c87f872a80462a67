//! The VFS: SQLite's own, with a disk's faults in front of it.
//!
//! Idea: a file of this VFS is a header followed by the file of SQLite's own VFS; each request
//! first asks the disk and is then passed on. Files that are on no faulty disk are opened directly
//! by SQLite's own VFS.
//!
//! Source: "The SQLite OS Interface or VFS" (sqlite.org/vfs.html), `sqlite3.h`. Limits: no memory
//! maps (methods of version 2): SQLite maps a database only if it is asked to.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rusqlite::ffi;

use crate::state::{FileId, SharedState, State, WriteFate, id_of, locked};

/// The disks, each with its folder.
static DISKS: RwLock<Vec<(PathBuf, SharedState)>> = RwLock::new(Vec::new());

/// SQLite's own VFS, and ours.
struct Registered {
    own: *mut ffi::sqlite3_vfs,
}

// SAFETY: the VFS is registered for ever, and SQLite itself uses it from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above; nothing here writes to it.
unsafe impl Sync for Registered {}

static REGISTERED: OnceLock<Registered> = OnceLock::new();

/// A file of a faulty disk. The file of SQLite's own VFS follows at [`OWN_AT`].
#[repr(C)]
struct FaultyFile {
    /// SQLite reads this first, so it must be the first field.
    base: ffi::sqlite3_file,
    opened: *mut OpenedFile,
}

/// Aligned for any type.
const OWN_AT: usize = size_of::<FaultyFile>().next_multiple_of(16);

struct OpenedFile {
    disk: Arc<Mutex<State>>,
    id: FileId,
}

/// Makes this the default VFS, once, and adds a disk.
pub(crate) fn add(root: &Path, disk: &SharedState) {
    REGISTERED.get_or_init(register);
    let mut disks = DISKS.write().unwrap_or_else(PoisonError::into_inner);
    disks.push((root.to_owned(), Arc::clone(disk)));
}

pub(crate) fn remove(root: &Path) {
    let mut disks = DISKS.write().unwrap_or_else(PoisonError::into_inner);
    disks.retain(|(other, _)| other != root);
}

fn disk_of(path: &Path) -> Option<SharedState> {
    let disks = DISKS.read().unwrap_or_else(PoisonError::into_inner);
    disks.iter().find(|(root, _)| path.starts_with(root)).map(|(_, disk)| Arc::clone(disk))
}

fn register() -> Registered {
    // SAFETY: without a name SQLite returns its default VFS; it sets itself up first.
    let own = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    assert!(!own.is_null(), "SQLite has a VFS of its own");
    // SAFETY: SQLite's VFS is a plain structure that lives as long as the process.
    let mut vfs = unsafe { *own };
    vfs.szOsFile += OWN_AT as c_int;
    vfs.pNext = ptr::null_mut();
    vfs.zName = c"faulty-disk".as_ptr();
    vfs.xOpen = Some(open);
    vfs.xDelete = Some(delete);
    // SAFETY: it is never freed, as SQLite demands; whatever is not set here is SQLite's own
    // function, which finds the data that it needs in the copy as in the original.
    let registered = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1) };
    assert_eq!(registered, ffi::SQLITE_OK, "SQLite takes a VFS");
    Registered { own }
}

fn own_vfs() -> *mut ffi::sqlite3_vfs {
    REGISTERED.get().expect("nobody calls an unregistered VFS").own
}

/// The path in `name`; `None`: a file without a name.
///
/// # Safety
/// `name` is null or a text that ends with a zero.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; SQLite keeps the text as long as the call lasts.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let own = own_vfs();
    // SAFETY: SQLite's own VFS has this function, as every VFS.
    let own_open = unsafe { (*own).xOpen }.expect("a VFS opens files");
    // SAFETY: SQLite passes a name or null.
    let path = unsafe { path_of(name) };
    let Some((path, disk)) = path.and_then(|path| Some((path, disk_of(path)?))) else {
        // SAFETY: the arguments are SQLite's; `file` has room for more than its own VFS needs.
        return unsafe { own_open(own, name, file, flags, out_flags) };
    };
    let own_file = own_of(file);
    // SAFETY: as above. SQLite allocated `szOsFile` bytes at `file`: our header, and behind it as
    // many bytes as its own VFS asked for. `own_file` points behind the header and is aligned as
    // `file` is.
    let opened = unsafe { own_open(own, name, own_file, flags, out_flags) };
    let faulty = file.cast::<FaultyFile>();
    if opened != ffi::SQLITE_OK {
        // SAFETY: `file` is SQLite's to be filled in; without methods it is not closed.
        unsafe { (*file).pMethods = ptr::null() };
        return opened;
    }
    let id = id_of(path).unwrap_or_default();
    locked(&disk).opened(id, path);
    let opened = Box::into_raw(Box::new(OpenedFile { disk, id }));
    // SAFETY: `file` has room for a header, which nobody else has a reference to yet.
    unsafe { faulty.write(FaultyFile { base: ffi::sqlite3_file { pMethods: &METHODS }, opened }) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    // SAFETY: SQLite passes a name.
    if let Some(path) = unsafe { path_of(name) }
        && let (Some(disk), Some(id)) = (disk_of(path), id_of(path))
    {
        locked(&disk).deleted(id);
    }
    let own = own_vfs();
    // SAFETY: SQLite's own function with SQLite's own arguments.
    unsafe { (*own).xDelete.expect("a VFS deletes files")(own, name, sync_folder) }
}

/// The file of SQLite's own VFS behind a header of ours.
fn own_of(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    file.wrapping_byte_add(OWN_AT)
}

/// The data of an open file.
///
/// # Safety
/// `file` was opened by [`open`] with [`METHODS`], and is not closed.
unsafe fn opened_of<'a>(file: *mut ffi::sqlite3_file) -> &'a OpenedFile {
    // SAFETY: the caller's promise: the header was written, and what it points to is freed in
    // `close` alone. It is only read.
    unsafe { &*(*file.cast::<FaultyFile>()).opened }
}

/// Calls SQLite's own method for a file.
macro_rules! own {
    ($file:ident . $method:ident ( $($argument:expr),* )) => {{
        let own = own_of($file);
        // SAFETY: `open` opened `own` with success, so that it has methods; SQLite's own VFS has
        // all those that `METHODS` has, and the arguments are SQLite's.
        unsafe {
            (*(*own).pMethods).$method.expect("SQLite's own method")(own $(, $argument)*)
        }
    }};
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let closed = own!(file.xClose());
    // SAFETY: SQLite closes a file once, and uses it no more.
    drop(unsafe { Box::from_raw((*file.cast::<FaultyFile>()).opened) });
    closed
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    len: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls methods of open files.
    let opened = unsafe { opened_of(file) };
    if locked(&opened.disk).read_fails() {
        return ffi::SQLITE_IOERR_READ;
    }
    own!(file.xRead(to, len, at))
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite calls methods of open files.
    let opened = unsafe { opened_of(file) };
    let mut size = 0;
    let sized = own!(file.xFileSize(&raw mut size));
    if sized != ffi::SQLITE_OK {
        return sized;
    }
    // SAFETY: SQLite passes `len` bytes to be written.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), unsigned(len.into())) };
    let fate = locked(&opened.disk).write(opened.id, unsigned(at), bytes, unsigned(size));
    let (written, error) = match fate {
        WriteFate::Whole => return own!(file.xWrite(from, len, at)),
        WriteFate::Fails(written) => (written, ffi::SQLITE_IOERR_WRITE),
        WriteFate::Full(written) => (written, ffi::SQLITE_FULL),
    };
    if written > 0 {
        let len = c_int::try_from(written).expect("no more than SQLite passed");
        let _ = own!(file.xWrite(from, len, at));
    }
    error
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, to: ffi::sqlite3_int64) -> c_int {
    // SAFETY: SQLite calls methods of open files.
    let opened = unsafe { opened_of(file) };
    if locked(&opened.disk).cut_fails(opened.id, unsigned(to)) {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    own!(file.xTruncate(to))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite calls methods of open files.
    let opened = unsafe { opened_of(file) };
    // The disk's contents are known here, so no real disk has to be waited for.
    if locked(&opened.disk).sync_fails(opened.id) {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    own!(file.xFileSize(size))
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    own!(file.xLock(level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    own!(file.xUnlock(level))
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    is_reserved: *mut c_int,
) -> c_int {
    own!(file.xCheckReservedLock(is_reserved))
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    own!(file.xFileControl(operation, argument))
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    own!(file.xSectorSize())
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    own!(file.xDeviceCharacteristics())
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    grows: c_int,
    mapped: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls methods of open files.
    let opened = unsafe { opened_of(file) };
    if grows == 0 || !locked(&opened.disk).has_no_room() {
        return own!(file.xShmMap(region, size, grows, mapped));
    }
    // A region that exists already needs no room.
    let found = own!(file.xShmMap(region, size, 0, mapped));
    // SAFETY: SQLite passes a place for the address, which its own VFS has filled in.
    let is_missing = found == ffi::SQLITE_OK && unsafe { (*mapped).is_null() };
    if !is_missing {
        return found;
    }
    locked(&opened.disk).index_failed();
    ffi::SQLITE_IOERR_SHMSIZE
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    own!(file.xShmLock(first, count, flags))
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    own!(file.xShmBarrier());
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, deletes: c_int) -> c_int {
    own!(file.xShmUnmap(deletes))
}

/// Converts a count from SQLite, which uses signed numbers but passes none below zero.
fn unsigned(count: ffi::sqlite3_int64) -> usize {
    usize::try_from(count).expect("a size or a place in a file")
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
