package ctl

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"strings"
)

func userVerbs() []verb {
	return []verb{
		addUser(), deleteUser(), changePassword(), clearPassword(), setUserTags(), listUsers(), authenticateUser(), hashPassword(),
	}
}

func noUser(name string) error { return fail(exitNoUser, `User "%s" does not exist`, name) }

// secret is the argument at the index, or the first line of standard input, so that a
// password need not appear in the process list.
func (i *invocation) secret(index int) (string, error) {
	if index < len(i.args) {
		return i.args[index], nil
	}
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fail(exitData, "password: %v", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", badArgument("Password cannot be provided via standard input: it is empty.")
	}
	return line, nil
}

// account is a user as the API has it.
type account struct {
	Hash      string   `json:"password_hash"`
	Algorithm string   `json:"hashing_algorithm"`
	Tags      []string `json:"tags"`
}

func (i *invocation) account(name string) (a account, err error) {
	err = i.get(path("users", name), &a)
	if is(err, http.StatusNotFound) {
		return a, noUser(name)
	}
	return a, explain(err)
}

func addUser() verb {
	return verb{
		name: "add_user", min: 1, max: 2, usage: "<username> <password>",
		short: "Creates a new user in the internal database. This user will have no permissions for any virtual hosts by default.",
		run: func(i *invocation) error {
			name := i.args[0]
			password, err := i.secret(1)
			if err != nil {
				return err
			}
			i.say(`Adding user "%s" ...`, name)
			switch err := i.get(path("users", name), nil); {
			case err == nil:
				return fail(exitSoftware, `User "%s" already exists`, name)
			case !is(err, http.StatusNotFound):
				return explain(err)
			}
			if err := i.put(path("users", name), object{"password": password, "tags": ""}); err != nil {
				return explain(err)
			}
			i.say("Done. Don't forget to grant the user permissions to some virtual hosts! See 'rabbitmqctl help set_permissions' to learn more.")
			return nil
		},
	}
}

func deleteUser() verb {
	return verb{
		name: "delete_user", short: "Removes a user from the internal database", min: 1, max: 1, usage: "<username>",
		run: func(i *invocation) error {
			i.say(`Deleting user "%s" ...`, i.args[0])
			err := i.delete(path("users", i.args[0]))
			if is(err, http.StatusNotFound) {
				return nil // as rabbitmqctl does
			}
			return explain(err)
		},
	}
}

func changePassword() verb {
	return verb{
		name: "change_password", short: "Changes the user password", min: 1, max: 2, usage: "<username> <password>",
		run: func(i *invocation) error {
			password, err := i.secret(1)
			if err != nil {
				return err
			}
			i.say(`Changing password for user "%s" ...`, i.args[0])
			a, err := i.account(i.args[0])
			if err != nil {
				return err
			}
			return explain(i.put(path("users", i.args[0]), object{"password": password, "tags": a.Tags}))
		},
	}
}

func clearPassword() verb {
	return verb{
		name: "clear_password", short: "Clears (resets) password and disables password login for a user", min: 1, max: 1, usage: "<username>",
		run: func(i *invocation) error {
			i.say(`Clearing password for user "%s" ...`, i.args[0])
			a, err := i.account(i.args[0])
			if err != nil {
				return err
			}
			return explain(i.put(path("users", i.args[0]), object{"password_hash": "", "tags": a.Tags}))
		},
	}
}

func setUserTags() verb {
	return verb{
		name: "set_user_tags", short: "Sets user tags", min: 1, max: -1, usage: "<username> <tag> [...]",
		run: func(i *invocation) error {
			name, list := i.args[0], i.args[1:]
			i.say(`Setting tags for user "%s" to [%s] ...`, name, strings.Join(list, ", "))
			a, err := i.account(name)
			if err != nil {
				return err
			}
			return explain(i.put(path("users", name), object{"password_hash": a.Hash, "hashing_algorithm": a.Algorithm, "tags": list}))
		},
	}
}

func listUsers() verb {
	return verb{
		name: "list_users", short: "List user names and tags", max: 0, usage: "[--no-table-headers]",
		run: func(i *invocation) error {
			var items []object
			if err := i.get("users", &items); err != nil {
				return explain(err)
			}
			columns := []column{
				{"user", func(o object) any { return o["name"] }},
				{"tags", func(o object) any { return tagsOf(o["tags"]) }},
			}
			return i.list("Listing users ...", columns, items)
		},
	}
}

func authenticateUser() verb {
	return verb{
		name: "authenticate_user", min: 1, max: 2, usage: "<username> <password>",
		short: "Attempts to authenticate a user. Exits with a non-zero code if authentication fails.",
		run: func(i *invocation) error {
			password, err := i.secret(1)
			if err != nil {
				return err
			}
			i.say(`Authenticating user "%s" ...`, i.args[0])
			err = i.post("control/authenticate", object{"user": i.args[0], "password": password}, nil)
			if is(err, http.StatusForbidden) {
				return fail(exitData, "Error: failed to authenticate user %q\nuser '%s' - invalid credentials", i.args[0], i.args[0])
			}
			if err != nil {
				return explain(err)
			}
			i.say("Success")
			return nil
		},
	}
}

func hashPassword() verb {
	return verb{
		name: "hash_password", short: "Hashes a plaintext password, for definitions files", min: 0, max: 1, usage: "<plaintext>",
		run: func(i *invocation) error {
			password, err := i.secret(0)
			if err != nil {
				return err
			}
			i.say("Will hash password ...")
			var salt [4]byte
			_, _ = rand.Read(salt[:]) // never fails
			sum := sha256.Sum256(append(salt[:], password...))
			i.print("%s", base64.StdEncoding.EncodeToString(append(salt[:], sum[:]...)))
			return nil
		},
	}
}
