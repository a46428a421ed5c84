// Package hostile attacks a server with clients that break the protocol, or keep
// it and mean ill: half frames, garbage, floods, silence. It is all tests.
//
// Each attack is held while an ordinary client is served, and its end waited for:
// the server must answer the ordinary client at once, keep its memory under the
// bound that the test states, and have no more goroutines and open files
// afterwards than before. Attacks by AMQP 1.0 (names that end in 10) have a bystander
// too, who publishes and gets a message every millisecond: with -alone he has to get 999
// of 1000 within 50 ms. So have dear requests of the management API, with an administrator who asks besides. That holds on a machine that does nothing else.
package hostile
