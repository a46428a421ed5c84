package index

// CheckDelta is CheckPage for a delta.
func CheckDelta(delta []byte) error {
	var ps Pages
	_, err := ps.parseDelta(delta)
	return err
}

// CheckPage says whether the copy of a page can be read, as far as all entries
// have it: what few have is looked at when the page is loaded.
func CheckPage(page []byte) error {
	var ps Pages
	_, err := ps.parse(page)
	return err
}
