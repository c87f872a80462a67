//! What a coordinator promises, tested on a real etcd. `crates/fleet-proto` has the same tests for
//! the one in memory.

use std::process::Command;
use std::time::Duration;

use ballast_fleet_proto::{
    Condition, Coordinator, CoordinatorError, KeyEvent, KeyWatch, KeyWrite, LeaseId, PutResult,
    Registration, Revision,
};

use crate::certificates::{CertificateAge, TestAuthority};
use crate::testing::{EtcdCluster, TestProxy, is_installed};
use crate::{EtcdClient, EtcdTls, EtcdUser, TlsIdentity};

const TTL: Duration = Duration::from_secs(2);
/// Time limit of calls that have to succeed even on a loaded machine.
const PATIENT: Duration = Duration::from_secs(20);

fn run(test: impl Future<Output = ()>) {
    if is_installed() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }
}

fn client(endpoints: &[String]) -> EtcdClient {
    EtcdClient::new(endpoints, None, PATIENT).unwrap()
}

fn put(key: &str, value: &[u8], lease: Option<LeaseId>) -> Vec<KeyWrite> {
    vec![KeyWrite::Put { key: key.to_owned(), value: value.to_vec(), lease }]
}

#[test]
fn endpoints_are_checked() {
    for endpoint in
        ["", "127.0.0.1:2379", "https://a:2379", "http://a", "http://a:b", "http://a/b:1"]
    {
        let client = EtcdClient::new(&[endpoint.to_owned()], None, TTL);
        assert!(client.is_err(), "{endpoint}");
    }
    let error = EtcdClient::new(&[], None, TTL).err().unwrap().to_string();
    assert_eq!(error, "the list of endpoints is empty: expected at least one http://HOST:PORT");
    let tls = EtcdTls { authorities: "/ca.pem".into(), identity: None };
    let plain = ["http://a:2379".to_owned()];
    let error = EtcdClient::with_tls(&plain, tls, None, TTL).err().unwrap();
    assert_eq!(error.to_string(), "endpoint `http://a:2379`: expected https://HOST:PORT");
    let client = EtcdClient::new(&["http://[::1]:2379/".to_owned()], None, TTL).unwrap();
    assert_eq!(client.endpoint(), "[::1]:2379");
}

#[test]
fn a_name_is_taken_once_and_free_after_its_lease() {
    run(async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let etcd = client(&cluster.endpoints());
        let first = etcd.register("/k", b"v".to_vec(), TTL, None).await.unwrap();
        let Registration::Registered { lease, written } = first else { panic!("taken") };
        let second = etcd.register("/k", b"w".to_vec(), TTL, None).await.unwrap();
        assert_eq!(second, Registration::Taken);
        etcd.renew(lease).await.unwrap();
        let listing = etcd.read("/").await.unwrap();
        assert_eq!(listing.entries[0].value, b"v");
        assert_eq!(listing.entries[0].written, written);
        let mut watch = etcd.watch("/k", listing.revision).await.unwrap();
        assert_eq!(watch.next().await.unwrap().events, [KeyEvent::Deleted("/k".to_owned())]);
        assert_eq!(etcd.renew(lease).await, Err(CoordinatorError::LeaseGone));
        let late = etcd.compare_and_put(&[], put("/k", b"late", Some(lease))).await;
        assert_eq!(late, Err(CoordinatorError::LeaseGone));
        let third = etcd.register("/k", b"w".to_vec(), TTL, None).await.unwrap();
        let Registration::Registered { lease, .. } = third else { panic!("taken") };
        etcd.release(lease).await.unwrap();
        etcd.release(lease).await.unwrap();
        assert_eq!(etcd.read("/k").await.unwrap().entries, []);
    });
}

#[test]
fn leaderships_have_rising_revisions() {
    run(async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let etcd = client(&cluster.endpoints());
        let (a, b) = (etcd.grant(PATIENT).await.unwrap(), etcd.grant(PATIENT).await.unwrap());
        let first = etcd.campaign("/l", b"a".to_vec(), a).await.unwrap().unwrap();
        assert_eq!(etcd.campaign("/l", b"b".to_vec(), b).await.unwrap(), None);
        etcd.release(a).await.unwrap();
        let second = etcd.campaign("/l", b"b".to_vec(), b).await.unwrap().unwrap();
        assert!(second > first);
        let of = |revision| [Condition { key: "/l".to_owned(), written: Some(revision) }];
        let stale = etcd.compare_and_put(&of(first), put("/plan", b"x", None)).await.unwrap();
        assert_eq!(stale, PutResult::Conflict);
        let fresh = etcd.compare_and_put(&of(second), put("/plan", b"y", None)).await.unwrap();
        assert!(matches!(fresh, PutResult::Written(_)));
        assert_eq!(etcd.read("/plan").await.unwrap().entries[0].value, b"y");
    });
}

#[test]
fn compacted_history_is_named_and_keys_are_read_again() {
    run(async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let etcd = client(&cluster.endpoints());
        for n in 0..5 {
            etcd.compare_and_put(&[], put("/a", format!("{n}").as_bytes(), None)).await.unwrap();
        }
        ctl(&cluster, &["compaction", "4"]);
        let mut watch = etcd.watch("/", Revision(1)).await.unwrap();
        assert!(matches!(watch.next().await, Err(CoordinatorError::Compacted(_))));
        let listing = etcd.read("/").await.unwrap();
        let mut watch = etcd.watch("/", listing.revision).await.unwrap();
        etcd.compare_and_put(&[], put("/a", b"new", None)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().events.len(), 1);
    });
}

/// Runs `etcdctl` as Debian ships it.
fn ctl(cluster: &EtcdCluster, arguments: &[&str]) -> String {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .arg(format!("--endpoints={}", cluster.endpoints().join(",")))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn more_keys_than_a_page_are_one_listing() {
    run(async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        let etcd = client(&cluster.endpoints());
        let keys = 1201;
        for n in (0..keys).step_by(100) {
            let range = n..keys.min(n + 100);
            let writes = range.flat_map(|n| put(&format!("/p/{n:05}"), b"v", None)).collect();
            etcd.compare_and_put(&[], writes).await.unwrap();
        }
        etcd.compare_and_put(&[], put("/q", b"v", None)).await.unwrap();
        let listing = etcd.read("/p/").await.unwrap();
        assert_eq!(listing.entries.len(), keys);
        assert!(listing.entries.is_sorted_by(|a, b| a.key < b.key));
    });
}

#[test]
fn a_full_etcd_says_that_it_is_full() {
    run(async {
        let cluster = EtcdCluster::start_with(1, &["--quota-backend-bytes=1000000"]).await.unwrap();
        let etcd = client(&cluster.endpoints());
        let mut last = Ok(PutResult::Conflict);
        for n in 0..100 {
            last = etcd.compare_and_put(&[], put(&format!("/{n}"), &[b'x'; 50_000], None)).await;
            if last.is_err() {
                break;
            }
        }
        assert!(matches!(last, Err(CoordinatorError::NoSpace(_))), "{last:?}");
        assert!(etcd.read("/0").await.is_ok(), "it can still be read");
    });
}

#[test]
fn passwords_are_asked_for_and_rights_are_kept() {
    run(async {
        let cluster = EtcdCluster::start(1).await.unwrap();
        for arguments in [
            &["user", "add", "root:secret"][..],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "fleet"],
            &["role", "grant-permission", "fleet", "readwrite", "/ballast/", "/ballast0"],
            &["user", "add", "host:word"],
            &["user", "grant-role", "host", "fleet"],
            &["auth", "enable"],
        ] {
            ctl(&cluster, arguments);
        }
        let of = |name: &str, password: &str| {
            let user = EtcdUser { name: name.to_owned(), password: password.to_owned() };
            EtcdClient::new(&cluster.endpoints(), Some(user), PATIENT).unwrap()
        };
        let host = of("host", "word");
        let key = "/ballast/x";
        let taken = host.register(key, b"v".to_vec(), PATIENT, None).await.unwrap();
        let Registration::Registered { lease, .. } = taken else { panic!("taken") };
        host.renew(lease).await.unwrap();
        assert_eq!(host.read(key).await.unwrap().entries.len(), 1);
        let is_denied = |error| matches!(error, CoordinatorError::Denied(_));
        assert!(is_denied(host.read("/other").await.unwrap_err()));
        assert!(is_denied(of("host", "wrong").read(key).await.unwrap_err()));
        assert!(is_denied(client(&cluster.endpoints()).read(key).await.unwrap_err()));
        // A restarted etcd has forgotten its tokens.
        let mut cluster = cluster;
        cluster.kill(0);
        cluster.start_member(0).unwrap();
        cluster.wait_for(0).await.unwrap();
        let mut read = host.read(key).await;
        if matches!(read, Err(CoordinatorError::Unreachable(_))) {
            read = host.read(key).await;
        }
        assert_eq!(read.unwrap().entries.len(), 1);
    });
}

#[test]
fn a_lost_majority_is_reported_until_it_is_back() {
    run(async {
        let mut cluster = EtcdCluster::start(3).await.unwrap();
        let etcd = EtcdClient::new(&cluster.endpoints(), None, Duration::from_secs(3)).unwrap();
        etcd.compare_and_put(&[], put("/a", b"before", None)).await.unwrap();
        cluster.kill(0);
        // Whichever member is called first, one of the next calls reaches a living one.
        let mut written = etcd.compare_and_put(&[], put("/a", b"two", None)).await;
        for _ in 0..10 {
            if written.is_ok() {
                break;
            }
            written = etcd.compare_and_put(&[], put("/a", b"two", None)).await;
        }
        written.unwrap();
        cluster.kill(1);
        for _ in 0..4 {
            let lost = etcd.compare_and_put(&[], put("/a", b"one", None)).await.unwrap_err();
            assert!(
                matches!(lost, CoordinatorError::Unreachable(_) | CoordinatorError::NoLeader(_)),
                "{lost:?}"
            );
        }
        cluster.start_member(1).unwrap();
        cluster.wait_for(1).await.unwrap();
        cluster.wait_for(2).await.unwrap();
        let mut read = etcd.read("/a").await;
        for _ in 0..10 {
            if read.is_ok() {
                break;
            }
            read = etcd.read("/a").await;
        }
        let value = &read.unwrap().entries[0].value;
        assert!(value == b"two" || value == b"one", "{value:?}");
    });
}

#[test]
fn an_endpoint_of_another_cluster_is_refused() {
    run(async {
        let (one, other) = (EtcdCluster::start(1).await, EtcdCluster::start(1).await);
        let (one, other) = (one.unwrap(), other.unwrap());
        let mut proxy = TestProxy::open(&one.endpoints()[0]).await.unwrap();
        let endpoints = [proxy.endpoint(), other.endpoints().remove(0)];
        let etcd = EtcdClient::new(&endpoints, None, PATIENT).unwrap();
        etcd.read("/").await.unwrap();
        assert!(proxy.bytes_passed() > 0);
        proxy.close().await;
        let gone = etcd.read("/").await.unwrap_err();
        assert!(matches!(gone, CoordinatorError::Unreachable(_)), "{gone:?}");
        let foreign = etcd.read("/").await.unwrap_err();
        assert!(matches!(foreign, CoordinatorError::OtherCluster { .. }), "{foreign:?}");
        proxy.reopen().await.unwrap();
        etcd.read("/").await.unwrap();
    });
}

#[test]
fn a_slow_etcd_ends_a_call_and_not_the_client() {
    run(async {
        // It accepts connections and never answers.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = EtcdCluster::start(1).await.unwrap();
        let endpoints =
            [format!("http://{}", silent.local_addr().unwrap()), cluster.endpoints().remove(0)];
        let etcd = EtcdClient::new(&endpoints, None, Duration::from_secs(2)).unwrap();
        let slow = etcd.read("/").await.unwrap_err();
        assert!(slow.to_string().contains("did not answer within 2 s"), "{slow}");
        assert!(etcd.read("/").await.is_ok());
    });
}

/// The error of a client with these files when it reads.
async fn read_error(
    endpoints: &[String],
    authority: &TestAuthority,
    identity: Option<&TlsIdentity>,
) -> Result<(), String> {
    let tls = EtcdTls { authorities: authority.certificate.clone(), identity: identity.cloned() };
    let etcd = EtcdClient::with_tls(endpoints, tls, None, PATIENT).unwrap();
    match etcd.read("/").await {
        Ok(_) => Ok(()),
        Err(CoordinatorError::Unreachable(why)) => Err(why),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn certificates_of_both_sides_open_etcd() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new(folder.path(), "ca").unwrap();
        let of = |file: &str, age| authority.sign(file, &["127.0.0.1"], age).unwrap();
        let (server, host) =
            (of("server", CertificateAge::Valid), of("host", CertificateAge::Valid));
        let cluster = EtcdCluster::start_tls(1, &authority, &server).await.unwrap();
        let at = cluster.endpoints();
        let tls =
            EtcdTls { authorities: authority.certificate.clone(), identity: Some(host.clone()) };
        tls.check().unwrap();
        let etcd = EtcdClient::with_tls(&at, tls, None, PATIENT).unwrap();
        let mut watch = etcd.watch("/", Revision(0)).await.unwrap();
        etcd.compare_and_put(&[], put("/a", b"v", None)).await.unwrap();
        assert_eq!(etcd.read("/a").await.unwrap().entries[0].value, b"v");
        assert_eq!(watch.next().await.unwrap().events.len(), 1);

        let none = read_error(&at, &authority, None).await.unwrap_err();
        assert!(none.contains("asks for a client's certificate: set `tls.certificate`"), "{none}");
        let old = of("old", CertificateAge::Expired);
        let old = read_error(&at, &authority, Some(&old)).await.unwrap_err();
        assert!(old.contains("refuses the certificate") && old.contains("old.pem"), "{old}");
        let other = TestAuthority::new(folder.path(), "other").unwrap();
        let foreign = other.sign("foreign", &["127.0.0.1"], CertificateAge::Valid).unwrap();
        let foreign = read_error(&at, &authority, Some(&foreign)).await.unwrap_err();
        assert!(foreign.contains("refuses the certificate"), "{foreign}");
        let wrong = read_error(&at, &other, Some(&host)).await.unwrap_err();
        assert!(wrong.contains("is signed by no authority in"), "{wrong}");
        assert!(wrong.ends_with("other.pem"), "{wrong}");

        let plain = at[0].replace("https://", "http://");
        let plain = client(&[plain]).read("/").await.unwrap_err().to_string();
        assert!(plain.contains("if etcd has TLS there"), "{plain}");
    });
}

#[test]
fn wrong_certificates_of_etcd_are_distinguished() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new(folder.path(), "ca").unwrap();
        let host = authority.sign("host", &["host"], CertificateAge::Valid).unwrap();
        for (name, age, needle) in [
            ("etcd-1", CertificateAge::Valid, "is not for 127.0.0.1, but for"),
            ("127.0.0.1", CertificateAge::Expired, "days ago, by this machine's clock"),
            ("127.0.0.1", CertificateAge::Early, "is valid only in"),
        ] {
            let server = authority.sign("server", &[name], age).unwrap();
            let cluster = EtcdCluster::start_tls(1, &authority, &server).await.unwrap();
            let why = read_error(&cluster.endpoints(), &authority, Some(&host)).await.unwrap_err();
            assert!(why.contains(needle), "{why}");
        }
        let plain = EtcdCluster::start(1).await.unwrap();
        let at = plain.endpoints()[0].replace("http://", "https://");
        let why = read_error(&[at], &authority, Some(&host)).await.unwrap_err();
        assert!(why.contains("begins with http://"), "{why}");
    });
}

#[test]
fn a_renewed_certificate_needs_no_new_client() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new(folder.path(), "ca").unwrap();
        let server = authority.sign("server", &["127.0.0.1"], CertificateAge::Valid).unwrap();
        let cluster = EtcdCluster::start_tls(1, &authority, &server).await.unwrap();
        let old = authority.sign("host", &["host"], CertificateAge::Expired).unwrap();
        let tls =
            EtcdTls { authorities: authority.certificate.clone(), identity: Some(old.clone()) };
        let etcd = EtcdClient::with_tls(&cluster.endpoints(), tls, None, PATIENT).unwrap();
        assert!(etcd.read("/").await.is_err());
        assert_eq!(authority.sign("host", &["host"], CertificateAge::Valid).unwrap(), old);
        etcd.read("/").await.unwrap();
    });
}

#[test]
fn files_that_tls_cannot_use_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new(folder.path(), "ca").unwrap();
    let of = |file: &str| authority.sign(file, &["host"], CertificateAge::Valid).unwrap();
    let (one, other) = (of("one"), of("other"));
    let file = |name: &str, text: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let ca = &authority.certificate;
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (authorities, certificate, key, needle) in [
        (&folder.path().join("none"), &one.certificate, &one.key, "none: cannot be read: No such"),
        (&file("empty", b""), &one.certificate, &one.key, "empty: expected a certificate in PEM"),
        (&file("broken", broken), &one.certificate, &one.key, "broken: "),
        (&file("large", &vec![b'x'; 2 << 20]), &one.certificate, &one.key, "more than 1048576"),
        (ca, &one.key, &one.key, "one-key.pem: expected a certificate in PEM"),
        (ca, &one.certificate, &one.certificate, "one.pem: expected a private key in PEM"),
        (ca, &one.certificate, &other.key, "other-key.pem: it is not the key of"),
    ] {
        let identity = Some(TlsIdentity { certificate: certificate.clone(), key: key.clone() });
        let tls = EtcdTls { authorities: authorities.clone(), identity };
        let error = tls.check().unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}
