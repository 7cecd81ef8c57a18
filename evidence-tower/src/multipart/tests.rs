use evidence_core::admission::Admission;
use evidence_core::compute::Refused;
use evidence_core::digest::sha256_hex;
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;

use super::*;

const ONE: FormParts = FormParts { document: "data_json", file: "template_file", many: false };
const MANY: FormParts = FormParts { document: "data_json", file: "attachment_file", many: true };

fn budget() -> RequestBudget {
    Admission::new(&Limits::default()).on_behalf_of(None)
}

/// Creates a body in pieces of at most `size` bytes, with a counter of the bytes that were read.
fn body(bytes: Vec<u8>, size: usize) -> (UnsyncBoxBody<Bytes, BoxError>, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let mut rest = Bytes::from(bytes);
    let pieces = std::iter::from_fn(move || {
        let piece = rest.split_to(rest.len().min(size));
        counter.fetch_add(piece.len(), Ordering::Relaxed);
        (!piece.is_empty()).then(|| Ok(http_body::Frame::data(piece)))
    });
    (StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync(), taken)
}

/// A part: the rest of `Content-Disposition` after `form-data; `, further headers, and the content.
type Sent<'a> = (&'a str, &'a [&'a str], &'a str);

const OTHER: Sent<'_> = ("name=\"other\"", &[], "");

fn form(parts: &[Sent<'_>]) -> Vec<u8> {
    let part = |(disposition, headers, content): &Sent<'_>| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n{headers}\r\n{content}\r\n")
    };
    let mut text: String = parts.iter().map(part).collect();
    text.push_str("--b--\r\n");
    text.into_bytes()
}

/// The result: the document, and each file's name, media type and content.
type Got = (Option<String>, Vec<[String; 3]>);

async fn got(bytes: Vec<u8>, size: usize, parts: FormParts) -> Result<Got> {
    got_within(bytes, size, parts, &Limits::default()).await
}

async fn got_within(bytes: Vec<u8>, size: usize, parts: FormParts, limits: &Limits) -> Result<Got> {
    let raw = read("b".to_owned(), body(bytes, size).0, parts, limits.document, limits, &budget()).await?.0;
    let RawBody::Form { document, files } = raw else { unreachable!("a form is read as a form") };
    let mut texts = Vec::new();
    for (_, file) in files {
        let (name, media_type, size, sha256) =
            (file.file_name.clone(), file.media_type.clone(), file.size, file.sha256.clone());
        let content = file.read().await.unwrap();
        assert_eq!((size, sha256.as_str()), (content.len() as u64, sha256_hex(&content).as_str()));
        texts.push([name, media_type, String::from_utf8(content).unwrap()]);
    }
    Ok((document.map(|text| String::from_utf8(text.to_vec()).unwrap()), texts))
}

#[tokio::test]
async fn a_form_is_its_document_and_its_files() {
    const DOCUMENT: Sent<'_> = ("name=\"data_json\"", &[], "{}");
    const OCTETS: &str = "application/octet-stream";
    const TEXT: &str = "text/plain; charset=utf-8";
    type Case<'a> = (&'a str, FormParts, &'a [Sent<'a>], Option<&'a str>, &'a [[&'a str; 3]]);
    let table: &[Case<'_>] = &[
        ("nothing", ONE, &[], None, &[]),
        ("a document", ONE, &[DOCUMENT], Some("{}"), &[]),
        (
            "a document as a file of a type",
            ONE,
            &[("name=\"data_json\"; filename=\"d.json\"", &["Content-Type: application/json"], "{}")],
            Some("{}"),
            &[],
        ),
        (
            "a file before the document",
            ONE,
            &[
                ("name=\"template_file\"; filename=\"t.yml\"", &["Content-Type: text/x-yaml"], "a: 1"),
                DOCUMENT,
            ],
            Some("{}"),
            &[["t.yml", "text/x-yaml", "a: 1"]],
        ),
        (
            "a file without a name",
            ONE,
            &[("name=\"template_file\"", &[], "x")],
            None,
            &[["template_file", OCTETS, "x"]],
        ),
        (
            "a path for a name",
            ONE,
            &[("name=\"template_file\"; filename=\"C:\\dir/../a/t.yml\"", &[], "x")],
            None,
            &[["t.yml", OCTETS, "x"]],
        ),
        (
            "a name that is only a path",
            ONE,
            &[("name=\"template_file\"; filename=\"a/..\"", &[], "x")],
            None,
            &[["template_file", OCTETS, "x"]],
        ),
        (
            "an empty file",
            ONE,
            &[("name=\"template_file\"; filename=\"t\"", &[], "")],
            None,
            &[["t", OCTETS, ""]],
        ),
        ("a file nobody chose", ONE, &[("name=\"template_file\"; filename=\"\"", &[], "")], None, &[]),
        (
            "other parts, also numbered ones",
            ONE,
            &[("name=\"other\"", &[], "x"), ("name=\"template_file.1\"; filename=\"f\"", &[], "x"), DOCUMENT],
            Some("{}"),
            &[],
        ),
        (
            "many files in the order of their numbers",
            MANY,
            &[
                ("name=\"attachment_file.99999999999\"; filename=\"d\"", &[], "4"),
                ("name=\"attachment_file.10\"; filename=\"c\"", &[], "3"),
                ("name=\"attachment_file.2\"; filename=\"b\"", &[], "2"),
                ("name=\"attachment_file\"; filename=\"a\"", &[], "1"),
                ("name=\"attachment_file.x\"; filename=\"x\"", &[], "0"),
                ("name=\"attachment_file.\"; filename=\"x\"", &[], "0"),
                ("name=\"attachment_files\"; filename=\"x\"", &[], "0"),
            ],
            None,
            &[["a", OCTETS, "1"], ["b", OCTETS, "2"], ["c", OCTETS, "3"], ["d", OCTETS, "4"]],
        ),
        ("a text", MANY, &[("name=\"attachment_file\"", &[], "é")], None, &[["attachment.txt", TEXT, "é"]]),
        ("an empty text", MANY, &[("name=\"attachment_file\"", &[], "")], None, &[]),
    ];
    for (name, parts, sent, document, files) in table {
        for size in [1, 7, 1 << 20] {
            let (got_document, got_files) = got(form(sent), size, *parts).await.unwrap();
            assert_eq!(got_document.as_deref(), *document, "{name}");
            assert_eq!(got_files, *files, "{name}");
        }
    }
}

fn refused_field(error: &Error) -> &str {
    let Error::Invalid { fields, .. } = error else { panic!("{error:?}") };
    fields.keys().next().map_or("", String::as_str)
}

#[tokio::test]
async fn a_malformed_form_is_refused_by_name() {
    let twice = |name: &'static str| form(&[(name, &[], "{}"), (name, &[], "{}")]);
    let files: Vec<String> =
        (0..33).map(|n| format!("name=\"attachment_file.{n}\"; filename=\"f\"")).collect();
    let huge = "name=\"attachment_file.99999999999999999999\"; filename=\"f\"".to_owned();
    let long = format!("name=\"attachment_file\"; filename=\"{}\"", "é".repeat(256));
    let files: Vec<Sent<'_>> = files.iter().map(|name| (name.as_str(), &[] as &[&str], "x")).collect();
    let table: [(&str, Vec<u8>, &str); 10] = [
        ("a document twice", twice("name=\"data_json\""), "data_json"),
        ("a file twice", twice("name=\"attachment_file\"; filename=\"f\""), "attachment_file"),
        ("33 files", form(&files), "attachment_file.32"),
        ("a part number of 20 digits", form(&[(&huge, &[], "x")]), "attachment_file.99999999999999999999"),
        ("a file name of 256 characters", form(&[(&long, &[], "x")]), "attachment_file"),
        ("65 parts", form(&[OTHER; 65]), "body"),
        ("nothing", Vec::new(), "body"),
        ("no end", b"--b\r\nContent-Disposition: form-data; name=\"data_json\"\r\n\r\n{}".to_vec(), "body"),
        ("no header end", b"--b\r\nContent-Disposition: form-data".to_vec(), "body"),
        ("a header that is none", b"--b\r\n\x01\r\n\r\n{}\r\n--b--".to_vec(), "body"),
    ];
    for (name, bytes, field) in table {
        let error = got(bytes, 1 << 20, MANY).await.expect_err(name);
        assert_eq!(refused_field(&error), field, "{name}: {error:?}");
    }
}

#[tokio::test]
async fn sizes_are_limited_to_the_byte() {
    const FILE: &str = "name=\"template_file\"; filename=\"f\"";
    let limits = Limits { file: 1 << 20, document: 200 << 10, form: 4 << 20, ..Limits::default() };
    let text = |size: u64| "x".repeat(usize::try_from(size).unwrap());
    let outcome = async |disposition: &str, size: u64| {
        got_within(form(&[(disposition, &[], &text(size))]), PIECE, ONE, &limits).await.map(|_| ())
    };
    assert!(outcome(FILE, limits.file).await.is_ok());
    assert!(matches!(outcome(FILE, limits.file + 1).await, Err(Error::TooLarge { file: true, .. })));
    assert!(outcome("name=\"data_json\"", limits.document).await.is_ok());
    let document = outcome("name=\"data_json\"", limits.document + 1).await;
    assert!(matches!(document, Err(Error::TooLarge { file: false, .. })));
    let others = outcome("name=\"other\"", max_form_size(&limits)).await;
    assert!(matches!(others, Err(Error::TooLarge { file: false, .. })));
}

#[tokio::test]
async fn an_attack_is_dropped_before_it_fills_the_memory() {
    let mut header = b"--b\r\nContent-Disposition: form-data; name=\"".to_vec();
    header.resize(30 << 20, b'x');
    let parts = form(&vec![OTHER; 20_000]);
    let attacks = [
        ("a boundary that never comes", vec![b'x'; 70 << 20]),
        ("a header of 30 MB", header),
        ("20,000 parts", parts),
    ];
    for (name, bytes) in attacks {
        for size in [PIECE, 100] {
            let (body, taken) = body(bytes.clone(), size);
            let limits = Limits::default();
            let error =
                read("b".to_owned(), body, MANY, limits.document, &limits, &budget()).await.expect_err(name);
            assert_eq!(refused_field(&error), "body", "{name}");
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken <= MAX_UNPARSED + 3 * PIECE, "{name}: {taken} bytes were read");
        }
    }
}

#[tokio::test]
async fn short_files_count_against_the_memory_and_the_temporary_space_of_their_tenant() {
    let file = "x".repeat(64 << 10);
    let names: Vec<String> =
        (0..32).map(|n| format!("name=\"attachment_file.{n}\"; filename=\"{n}\"")).collect();
    let parts: Vec<Sent<'_>> = names.iter().map(|name| (name.as_str(), &[][..], file.as_str())).collect();
    // Two mebibytes in total. A tenant may use an eighth of the memory, and half of the temporary space.
    for (request_memory, temporary_space, accepted) in
        [(16 << 20, 1 << 20, true), (1 << 20, 8 << 20, true), (1 << 20, 1 << 20, false)]
    {
        let limits = Limits { request_memory, temporary_space, ..Limits::default() };
        let budget = Admission::new(&limits).on_behalf_of(None);
        let (body, _) = body(form(&parts), 1000);
        let outcome = read("b".to_owned(), body, MANY, limits.document, &limits, &budget).await;
        match outcome {
            Ok(_) => assert!(accepted, "{request_memory} {temporary_space}"),
            Err(error) => {
                assert!(matches!(error, Error::Overloaded(Refused::Disk)) && !accepted, "{error:?}");
            }
        }
    }
}

/// The files are received before memory for the documents is available.
#[tokio::test(start_paused = true)]
async fn forms_with_short_files_and_long_documents_do_not_wait_for_each_other() {
    let limits = Limits { request_memory: 16 << 20, ..Limits::default() };
    let budget = Admission::new(&limits).on_behalf_of(None);
    let (file, document) = ("x".repeat(64 << 10), "y".repeat(1 << 20));
    let names: Vec<String> =
        (0..32).map(|n| format!("name=\"attachment_file.{n}\"; filename=\"{n}\"")).collect();
    let mut parts: Vec<Sent<'_>> = names.iter().map(|name| (name.as_str(), &[][..], file.as_str())).collect();
    parts.push(("name=\"data_json\"", &[], &document));
    // The files are as long as the tenant's memory limit. Each document takes half of that.
    let forms = std::iter::repeat_with(|| body(form(&parts), 64 << 10).0).take(4);
    let read = forms.map(async |body| {
        read("b".to_owned(), body, MANY, limits.document, &limits, &budget).await.map(drop)
    });
    for outcome in futures_util::future::join_all(read).await {
        outcome.unwrap();
    }
}

#[test]
fn a_boundary_has_1_to_70_characters() {
    let longest = "x".repeat(70);
    let table = [
        ("multipart/form-data; boundary=b".to_owned(), Some("b")),
        ("Multipart/Form-Data; Boundary=\"b c\"".to_owned(), Some("b c")),
        (format!("multipart/form-data; boundary={longest}"), Some(longest.as_str())),
        (format!("multipart/form-data; boundary={longest}x"), None),
        ("multipart/form-data; boundary=\"\"".to_owned(), None),
        ("multipart/form-data".to_owned(), None),
    ];
    for (content_type, found) in table {
        assert_eq!(boundary(&content_type).ok().as_deref(), found, "{content_type}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "(--b|\r\n|--|Content-Disposition: form-data; |name=\"(data_json|attachment_file)\"|filename=|[a-z]{0,5}|\r\n\r\n){0,24}"
                .prop_map(String::into_bytes),
        ],
        size in 1_usize..64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (limits, budget) = (Limits::default(), budget());
        let form = read("b".to_owned(), body(bytes, size).0, MANY, limits.document, &limits, &budget);
        let outcome = runtime.block_on(form).map(|(body, _)| body);
        prop_assert!(matches!(outcome, Ok(RawBody::Form { .. }) | Err(Error::Invalid { .. })), "{outcome:?}");
    }
}
