package ctl

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// adminOptions are the options of rabbitmqadmin. Each may stand in the configuration file too.
type adminOptions struct {
	config, node                     string
	hostname, port, pathPrefix, uri  string
	username, password, dataDir      string
	vhost, declareVHost              string
	ssl, sslInsecure, sslAnyHostname bool
	sslKey, sslCert, sslCA           string
	requestTimeout                   int // seconds
	formatName, depth, sort          string
	sortReverse, quiet, completion   bool
}

func (o *adminOptions) declare(f *pflag.FlagSet) {
	f.StringVarP(&o.config, "config", "c", "", "configuration file (default ~/"+adminConfigFile+")")
	f.StringVarP(&o.node, "node", "N", "default", "section of the configuration file")
	f.StringVarP(&o.hostname, "host", "H", "localhost", "host of the management API")
	f.StringVarP(&o.port, "port", "P", "15672", "port of the management API")
	f.StringVar(&o.pathPrefix, "path-prefix", "", "prefix of all paths of the management API")
	f.StringVarP(&o.vhost, "vhost", "V", "", "virtual host (default: all for list, / for declare)")
	f.StringVarP(&o.username, "username", "u", "", "user of the management API (default guest)")
	f.StringVarP(&o.password, "password", "p", "", "the user's password (default guest)")
	f.StringVarP(&o.uri, "base-uri", "U", "", "address of the management API, with user and password, as one URI; its path is ignored")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no messages about what was done")
	f.BoolVarP(&o.ssl, "ssl", "s", false, "connect with TLS")
	f.StringVar(&o.sslKey, "ssl-key-file", "", "PEM file with the client's key")
	f.StringVar(&o.sslCert, "ssl-cert-file", "", "PEM file with the client's certificate")
	f.StringVar(&o.sslCA, "ssl-ca-cert-file", "", "PEM file with certificates of authorities to trust")
	f.BoolVar(&o.sslAnyHostname, "ssl-disable-hostname-verification", false, "accept a certificate for any host name")
	f.BoolVarP(&o.sslInsecure, "ssl-insecure", "k", false, "accept any certificate")
	f.IntVarP(&o.requestTimeout, "request-timeout", "t", 120, "seconds to wait for an answer")
	formats := make([]string, len(adminFormats))
	for i, format := range adminFormats {
		formats[i] = format.name
	}
	f.StringVarP(&o.formatName, "format", "f", "table", "format of lists: "+strings.Join(formats, ", "))
	f.StringVarP(&o.sort, "sort", "S", "", "column by which lists are sorted")
	f.BoolVarP(&o.sortReverse, "sort-reverse", "R", false, "sort in reverse order")
	f.StringVarP(&o.depth, "depth", "d", "", "depth to which objects inside objects are shown as columns (default 1)")
	f.BoolVar(&o.completion, "bash-completion", false, "print a completion script for bash")
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of a node on this machine, to connect as its owner; also $"+dataDirVariable)
	f.StringVar(&o.declareVHost, "declare-vhost", "/", "")
	_ = f.MarkHidden("declare-vhost") // a key of the configuration file
	f.SortFlags = false
	var names []string
	f.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	names = append(names, "help", "version")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(unabridged(names, name))
	})
}

// unabridged is the only name that begins with the given one, which Python's options may be shortened to, else the given one.
func unabridged(names []string, given string) string {
	found := given
	for _, name := range names {
		switch {
		case name == given:
			return given
		case strings.HasPrefix(name, given) && found == given:
			found = name
		case strings.HasPrefix(name, given):
			return given
		}
	}
	return found
}

// connect reads the configuration file and returns a client of the node. Without an address it finds the node as the other
// tools do. host is what texts name it.
func (o *adminOptions) connect(f *pflag.FlagSet, errs io.Writer) (c *client, host string, err error) {
	if err := o.readConfig(f); err != nil {
		return nil, "", err
	}
	common := options{user: o.username, password: o.password, dataDir: o.dataDir, timeout: float64(o.requestTimeout)}
	given := func(flags ...string) bool {
		for _, name := range flags {
			if f.Changed(name) {
				return true
			}
		}
		return false
	}
	scheme := "http"
	if o.uri != "" {
		u, err := url.Parse(o.uri)
		if err != nil {
			return nil, "", adminUsageError("base URI: %v", err)
		}
		o.hostname, o.port = cmp.Or(u.Hostname(), o.hostname), cmp.Or(u.Port(), o.port)
		if u.User != nil {
			common.user = cmp.Or(u.User.Username(), common.user)
			if password, ok := u.User.Password(); ok {
				common.password = password
			}
		}
		if u.Scheme == "https" {
			o.ssl = true
		}
		if u.Path != "" && u.Path != "/" {
			_, _ = fmt.Fprint(errs, "WARNING: path in --base-uri is ignored. Please specify --vhost and/or --path-prefix separately.\n\n")
		}
	}
	if o.ssl {
		scheme = "https"
	}
	if given("host", "port", "path-prefix", "base-uri", "ssl") {
		common.url = scheme + "://" + net.JoinHostPort(o.hostname, o.port) + o.pathPrefix
	}
	if common.password != "" && common.user == "" && os.Getenv(userVariable) == "" {
		common.user = "guest"
	}
	if common.user != "" && common.password == "" && os.Getenv(passwordVariable) == "" && os.Getenv(passwordFileVariable) == "" {
		common.password = "guest"
	}
	if c, err = newClient(&common); err != nil {
		return nil, "", err
	}
	if o.ssl {
		t := http.DefaultTransport.(*http.Transport).Clone()
		if t.TLSClientConfig, err = o.tlsConfig(); err != nil {
			return nil, "", err
		}
		c.http.Transport = t
	}
	host = "localhost"
	if u, err := url.Parse(c.base); err == nil && c.dir == "" {
		host = u.Hostname()
	}
	return c, host, nil
}

func (o *adminOptions) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{InsecureSkipVerify: o.sslInsecure || o.sslAnyHostname}
	if o.sslCA != "" {
		pem, err := os.ReadFile(o.sslCA)
		if err != nil {
			return nil, adminError("%v", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, adminError("%s has no certificate", o.sslCA)
		}
	}
	if o.sslAnyHostname && !o.sslInsecure {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			others := x509.NewCertPool()
			for _, certificate := range s.PeerCertificates[1:] {
				others.AddCert(certificate)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.RootCAs, Intermediates: others})
			return err
		}
	}
	if o.sslKey != "" {
		pair, err := tls.LoadX509KeyPair(cmp.Or(o.sslCert, o.sslKey), o.sslKey)
		if err != nil {
			return nil, adminError("%v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// adminConfigFile is in the home directory of its user.
const adminConfigFile = ".rabbitmqadmin.conf"

// readConfig sets the options that the section of the configuration file has and the command line has not.
func (o *adminOptions) readConfig(f *pflag.FlagSet) error {
	path := o.config
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil
		}
		path = filepath.Join(home, adminConfigFile)
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && o.config == "" {
		return nil
	}
	if err != nil {
		return adminUsageError("Could not read config file '%s'", path)
	}
	defer func() { _ = file.Close() }()
	settings, found, err := readSection(bufio.NewScanner(file), o.node)
	if err != nil {
		return adminUsageError("Could not read config file '%s': %v", path, err)
	}
	if !found && o.node != "default" {
		return adminUsageError("Could not read section '%s' in config file '%s':\n   No section: '%s'", o.node, path, o.node)
	}
	for _, s := range settings {
		name := strings.ReplaceAll(s.key, "_", "-")
		switch name {
		case "hostname":
			name = "host"
		case "verbose":
			name, s.value = "quiet", map[string]string{"False": "true", "True": "false"}[s.value]
		}
		flag := f.Lookup(name)
		if flag == nil {
			return adminUsageError("Config file '%s' has the unknown key '%s'", path, s.key)
		}
		if flag.Changed {
			continue
		}
		if err := f.Set(flag.Name, s.value); err != nil {
			return adminUsageError("Config file '%s': %s: %v", path, s.key, err)
		}
	}
	return nil
}

type setting struct{ key, value string }

// readSection reads a section of a file in the form of Python's configparser, and the section DEFAULT.
func readSection(lines *bufio.Scanner, section string) (settings []setting, found bool, err error) {
	in := ""
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && line[len(line)-1] == ']':
			in = line[1 : len(line)-1]
			found = found || in == section
		case in == section || in == "DEFAULT":
			i := strings.IndexAny(line, "=:")
			if i < 0 {
				return nil, false, fmt.Errorf("line %d is no KEY = VALUE", n)
			}
			value := strings.ReplaceAll(strings.TrimSpace(line[i+1:]), "%%", "%") // a percent sign is written twice
			settings = append(settings, setting{strings.ToLower(strings.TrimSpace(line[:i])), value})
		}
	}
	return settings, found, lines.Err()
}

const adminConfigUsage = `A configuration file describes nodes. ` + adminName + ` reads ~/` + adminConfigFile + `, or the file of --config. The section is
"default", or the one that --node names. Options on the command line come first.

Example
=======

  [default]
  hostname = localhost
  port = 15672
  username = guest
  password = guest
  # declare and delete use this virtual host
  declare_vhost = /
  # declare, delete and list use this one
  vhost = /

  [secure]
  hostname = otherhost
  port = 15671
  ssl = True
  ssl_key_file = /path/to/client_key.pem
  ssl_cert_file = /path/to/client_certificate.pem

Use
===

  ` + adminName + ` -c ` + adminName + `.conf -N secure ...`
