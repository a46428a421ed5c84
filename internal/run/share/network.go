package share

import "net/netip"

// Network is the owner of what comes from an address, HOST:PORT: the address, or of IPv6 its network of 64 bits, of which whoever has one address has
// all. What is no such address, as a peer of a Unix socket, is one owner.
func Network(peer string) netip.Prefix {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the number of bits fits
	return p
}
