// Package security tries to get at a node what nobody may have: past passwords, past
// permissions, past TLS, and out of its log. Each test starts a node of its own in
// this process, and speaks to it through its ports only.
package security
