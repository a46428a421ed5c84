// Package hostile attacks a server with clients that break the protocol, or keep
// it and mean ill: half frames, garbage, floods, silence. It is all tests.
//
// Each attack is held while an ordinary client is served, and its end waited for:
// the server must answer the ordinary client at once, keep its memory under the
// bound that the test states, and have no more goroutines and open files
// afterwards than before.
package hostile
