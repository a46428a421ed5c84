package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// openAPIKeys are apsaramq.instance_id and apsaramq.access_key.NAME.*.
var openAPIKeys = []key{
	{pattern: "apsaramq.instance_id", live: true, value: text(func(c *Config) *string { return &c.OpenAPI.InstanceID })},
	{pattern: "apsaramq.access_key.*.id", live: true, value: ofAccessKey(func(k *AccessKey) *string { return &k.ID }, func(value string) error {
		if len(value) > maxKeyID || strings.IndexFunc(value, notOfKeyID) >= 0 {
			return fmt.Errorf("is not at most %d letters, digits and characters of . _ -", maxKeyID)
		}
		return nil
	})},
	{pattern: "apsaramq.access_key.*.secret", live: true, secret: true, value: ofAccessKey(func(k *AccessKey) *string { return &k.Secret }, func(value string) error {
		if len(value) < minKeySecret {
			return fmt.Errorf("must have at least %d characters: a shorter one can be guessed from one request", minKeySecret)
		}
		return nil
	})},
	{pattern: "apsaramq.access_key.*.user", live: true, value: ofAccessKey(func(k *AccessKey) *string { return &k.User }, nil)},
}

// Bounds of an access key, in bytes.
const (
	maxKeyID     = 128
	minKeySecret = 16
)

func notOfKeyID(r rune) bool { return !isKeyRune(r) || r > 127 || r == '\\' || r == '/' }

// ofAccessKey is a field of the access key that * stands for.
func ofAccessKey(field func(*AccessKey) *string, check func(value string) error) value {
	return value{
		set: func(p *parser, name, value string) (string, error) {
			if value == "" {
				return "", errors.New("must not be empty")
			}
			if check != nil {
				if err := check(value); err != nil {
					return "", err
				}
			}
			*field(p.c.OpenAPI.accessKey(name)) = value
			return "", nil
		},
		show: func(c *Config) (shown []named) {
			for _, k := range c.OpenAPI.AccessKeys {
				if v := *field(&k); v != "" {
					shown = append(shown, named{k.Name, v})
				}
			}
			return shown
		},
	}
}

// accessKey returns the access key of a name; it adds one if there is none.
func (o *OpenAPI) accessKey(name string) *AccessKey {
	i, found := slices.BinarySearchFunc(o.AccessKeys, name, func(k AccessKey, name string) int { return strings.Compare(k.Name, name) })
	if !found {
		o.AccessKeys = slices.Insert(o.AccessKeys, i, AccessKey{Name: name})
	}
	return &o.AccessKeys[i]
}

// check finds incomplete access keys and IDs that are used twice.
func (o *OpenAPI) check() error {
	var failed []error
	names := map[string]string{} // by ID
	for _, k := range o.AccessKeys {
		where := "apsaramq.access_key." + k.Name
		if k.ID == "" || k.Secret == "" || k.User == "" {
			failed = append(failed, fmt.Errorf("%s: an access key needs %s.id, %s.secret and %s.user", where, where, where, where))
		}
		if other, twice := names[k.ID]; twice && k.ID != "" {
			failed = append(failed, fmt.Errorf("%s.id: apsaramq.access_key.%s has the same ID", where, other))
		}
		names[k.ID] = k.Name
	}
	return errors.Join(failed...)
}
