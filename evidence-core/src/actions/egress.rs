//! Decides which destinations the service may connect to on behalf of a tenant. These are global addresses,
//! and ranges that the operator allows.
//!
//! A URL is checked without name resolution when it is saved. The connector checks each address that a name
//! resolves to immediately before connecting, and connects to that address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::{Host, Url};

/// A range of addresses, such as `10.0.0.0/8` or `fd00::/8`; a single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange {
    network: IpAddr,
    prefix: u8,
}

/// Error: the text is not a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a range of addresses looks like 10.0.0.0/8 or fd00::/8")]
pub struct NoRange;

impl FromStr for IpRange {
    type Err = NoRange;

    fn from_str(text: &str) -> Result<Self, NoRange> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| NoRange)?)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().map_err(|_| NoRange)?;
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(NoRange) } else { Ok(Self { network, prefix }) }
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl IpRange {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(first: u16, second: u16, prefix: u8) -> Self {
        Self { network: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)), prefix }
    }

    /// Returns whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(network) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(network) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}

/// Addresses that are not reached over the internet. They are the IANA IPv4 Special-Purpose Address Registry
/// (RFC 6890), multicast, and the global address at which Azure serves its virtual machines.
const NOT_GLOBAL_V4: [IpRange; 16] = [
    IpRange::v4(0, 0, 0, 0, 8),
    IpRange::v4(10, 0, 0, 0, 8),
    IpRange::v4(100, 64, 0, 0, 10),
    IpRange::v4(127, 0, 0, 0, 8),
    IpRange::v4(168, 63, 129, 16, 32),
    IpRange::v4(169, 254, 0, 0, 16),
    IpRange::v4(172, 16, 0, 0, 12),
    IpRange::v4(192, 0, 0, 0, 24),
    IpRange::v4(192, 0, 2, 0, 24),
    IpRange::v4(192, 88, 99, 0, 24),
    IpRange::v4(192, 168, 0, 0, 16),
    IpRange::v4(198, 18, 0, 0, 15),
    IpRange::v4(198, 51, 100, 0, 24),
    IpRange::v4(203, 0, 113, 0, 24),
    IpRange::v4(224, 0, 0, 0, 4),
    IpRange::v4(240, 0, 0, 0, 4),
];

/// Global unicast (RFC 4291). All other addresses are outside of it: loopback, unique local, link-local,
/// multicast, and the prefixes that translate to IPv4 (RFC 6052).
const GLOBAL_V6: IpRange = IpRange::v6(0x2000, 0, 3);

/// Ranges within global unicast that are not reached over the internet or lead to IPv4 addresses. They are
/// protocol assignments with Teredo (RFC 4380), documentation, and 6to4 (RFC 3056).
const NOT_GLOBAL_V6: [IpRange; 4] = [
    IpRange::v6(0x2001, 0, 23),
    IpRange::v6(0x2001, 0xdb8, 32),
    IpRange::v6(0x2002, 0, 16),
    IpRange::v6(0x3fff, 0, 20),
];

/// Suffixes of names that do not resolve on the internet: RFC 6761, RFC 6762, RFC 8375, `internal` (reserved
/// by ICANN), and those that clusters and local networks assign.
const LOCAL_NAMES: [&str; 7] = ["localhost", "local", "internal", "localdomain", "lan", "home.arpa", "svc"];

fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !NOT_GLOBAL_V4.iter().any(|range| range.contains(address)),
        IpAddr::V6(_) => {
            GLOBAL_V6.contains(address) && !NOT_GLOBAL_V6.iter().any(|range| range.contains(address))
        }
    }
}

/// The destinations that the operator allows. By default there are no extra ranges, and tenants can reach
/// only the internet, only with `https`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Egress {
    /// Ranges that are allowed although they are not global. If there are any, `http` is allowed too.
    pub allowed: Vec<IpRange>,
}

/// The reason why a URL is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedUrl {
    /// The URL cannot be parsed.
    #[error("Input should be a valid URL: {0}")]
    Unreadable(#[from] url::ParseError),
    /// The scheme is not allowed.
    #[error("URL scheme should be 'https'")]
    Scheme,
    /// The URL has a user name or a password, which must not be in a URL.
    #[error("URL should have no user name and no password")]
    Credentials,
    /// The host is not reached over the internet.
    #[error(
        "URL host should be reached over the internet, and '{0}' is not; the operator of the server may allow it"
    )]
    Host(String),
}

/// A URL that may be saved: the address to connect to, and the path to request.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// The host, as a name or an address.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The path with the query, as in a request line.
    pub path: String,
}

impl fmt::Debug for Endpoint {
    // The path of a webhook is its credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tls, host, port, .. } = self;
        f.debug_struct("Endpoint")
            .field("tls", tls)
            .field("host", host)
            .field("port", port)
            .finish_non_exhaustive()
    }
}

impl Egress {
    /// Returns whether the service may connect to this address.
    pub fn permits(&self, address: IpAddr) -> bool {
        // An IPv4-mapped address leads to the same host as the IPv4 address.
        let address = address.to_canonical();
        is_global(address) || self.allows(address)
    }

    /// Returns whether the operator's ranges contain this address.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|range| range.contains(address))
    }

    /// Checks a URL without resolving its name. Unusual spellings of addresses (`http://2130706433`,
    /// `http://0x7f.1`) are parsed by the [URL standard](https://url.spec.whatwg.org/#host-parsing), as HTTP
    /// clients do.
    ///
    /// # Errors
    /// Returns the reason why the URL must not be saved.
    pub fn check_url(&self, text: &str) -> Result<Endpoint, RefusedUrl> {
        let url = Url::parse(text)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" if !self.allowed.is_empty() => false,
            _ => return Err(RefusedUrl::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RefusedUrl::Credentials);
        }
        let host = url.host().ok_or(url::ParseError::EmptyHost)?.to_owned();
        let reachable = match &host {
            Host::Ipv4(address) => self.permits((*address).into()),
            Host::Ipv6(address) => self.permits((*address).into()),
            Host::Domain(name) => !self.allowed.is_empty() || is_internet_name(name),
        };
        if !reachable {
            return Err(RefusedUrl::Host(host.to_string()));
        }
        let port = url.port_or_known_default().unwrap_or(443);
        let path = url[url::Position::BeforePath..url::Position::AfterQuery].to_owned();
        Ok(Endpoint { tls, host, port, path })
    }
}

/// Returns whether a name may resolve on the internet: it has a domain that is not local.
fn is_internet_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_below =
        |end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !LOCAL_NAMES.iter().any(|end| is_below(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(ranges: &[&str]) -> Egress {
        Egress { allowed: ranges.iter().map(|range| range.parse().unwrap()).collect() }
    }

    #[test]
    fn only_global_addresses_are_connected_to() {
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a00:1",
            "100::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ];
        for address in refused {
            assert!(!Egress::default().permits(address.parse().unwrap()), "{address}");
        }
        let permitted = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "172.32.0.1",
            "192.1.2.3",
            "::ffff:8.8.8.8",
            "2606:4700::1111",
        ];
        for address in permitted {
            assert!(Egress::default().permits(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn the_operator_allows_ranges() {
        let egress = egress(&["127.0.0.0/8", "10.1.2.3", "fd00::/8"]);
        for (address, permitted) in [
            ("127.0.0.1", true),
            ("::ffff:127.9.9.9", true),
            ("::1", false),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("fd12::1", true),
            ("fc12::1", false),
        ] {
            assert_eq!(egress.permits(address.parse().unwrap()), permitted, "{address}");
        }
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "example.com", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<IpRange>(), Err(NoRange), "{text}");
        }
        let all: IpRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("9.9.9.9".parse().unwrap()) && !all.contains("::1".parse().unwrap()));
        assert_eq!("fd00::/8".parse::<IpRange>().unwrap().to_string(), "fd00::/8");
    }

    #[test]
    fn urls_are_refused_for_where_they_lead_whatever_their_spelling() {
        let refused = [
            "http://hooks.example.com/",
            "ftp://hooks.example.com/",
            "file:///etc/passwd",
            "hooks.example.com",
            "https://",
            "https://user@hooks.example.com/",
            "https://:secret@hooks.example.com/",
            "https://localhost/",
            "https://LOCALHOST/",
            "https://localhost./",
            "https://a.localhost/",
            "https://printer.local/",
            "https://metadata.google.internal/",
            "https://web.default.svc/",
            "https://web.default.svc.cluster.local/",
            "https://intranet/",
            "https://router.lan/",
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0x7f.0.0.1/",
            "https://0177.0.0.1/",
            "https://017700000001/",
            "https://127.0.0.1./",
            "https://%31%32%37.0.0.1/",
            "https://１２７.0.0.1/",
            "https://①②⑦.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://[fe80::1]/",
            "https://169.254.169.254/latest/meta-data/",
            "https://0/",
            "https://10.0.0.8/",
            "https://100.100.100.200/",
            "https://192.168.0.1:8443/x",
            "https://hooks.example.com:99999/",
            "https://loc\talhost/",
            "https://0xa9fea9fe/",
            "https://[::ffff:169.254.169.254]/",
        ];
        for url in refused {
            assert!(Egress::default().check_url(url).is_err(), "{url}");
        }
        for (url, host, port, path) in [
            (
                "https://hooks.example.com/services/T0/B0/x?y=1#z",
                "hooks.example.com",
                443,
                "/services/T0/B0/x?y=1",
            ),
            ("https://HOOKS.example.com:8443", "hooks.example.com", 8443, "/"),
            ("https://8.8.8.8/a b", "8.8.8.8", 443, "/a%20b"),
            ("https://bücher.example/", "xn--bcher-kva.example", 443, "/"),
        ] {
            let endpoint = Egress::default().check_url(url).unwrap();
            let found = (endpoint.host.to_string(), endpoint.port, endpoint.path.as_str());
            assert_eq!((found.0.as_str(), found.1, found.2), (host, port, path), "{url}");
            assert!(!format!("{:?}", Egress::default().check_url(url)).contains("services"), "{url}");
        }
        let local = egress(&["127.0.0.0/8"]);
        for url in
            ["http://127.0.0.1:9/", "http://localhost:9/", "https://127.0.0.1/", "https://example.com/"]
        {
            assert!(local.check_url(url).is_ok(), "{url}");
        }
        for url in ["http://10.0.0.1/", "https://[::1]/", "http://169.254.169.254/", "ftp://127.0.0.1/"] {
            assert!(local.check_url(url).is_err(), "{url}");
        }
    }
}
