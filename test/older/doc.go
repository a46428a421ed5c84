// Package older opens data directories that an earlier release has written, and looks whether everything is there.
//
// testdata has two of each release, with the same declarations and messages of every kind: one of a node that was
// stopped, one of a node that was killed while a client had messages. Once a release is tagged they are never written anew: a release
// that cannot read them cannot read what its users have. Those of a later release are added beside them:
//
//	go test ./test/older -make BARTLEBY -release NAME
package older
