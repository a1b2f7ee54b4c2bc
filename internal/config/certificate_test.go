package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// selfSigned is a certificate of that name, its own authority, and its key, as PEM.
func selfSigned(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// Certificates that are renewed, and an authority that is another one, are taken without
// a restart, two seconds after they were written; what cannot be used is told once.
func TestCertificatesRenewed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	x := &ProxyTLS{Cert: filepath.Join(folder, "cert.pem"), Key: filepath.Join(folder, "key.pem"), ClientCA: filepath.Join(folder, "ca.pem")}
	write := func(path string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	oldCert, oldKey := selfSigned(t, "old")
	newCert, newKey := selfSigned(t, "new")
	write(x.Cert, oldCert)
	write(x.Key, oldKey)
	write(x.ClientCA, oldCert)
	var told []error
	c, err := x.certificates(func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { return now }
	server := c.server()
	// shake says who the server is, and whether it takes the client with that pair.
	shake := func(cert, key []byte) (name string, good bool) {
		t.Helper()
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		there, here := net.Pipe()
		defer there.Close()
		defer here.Close()
		served := make(chan error, 1)
		go func() {
			err := tls.Server(there, server).Handshake()
			there.Close()
			served <- err
		}()
		client := tls.Client(here, &tls.Config{
			InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, // of 1.3 the client is through before the server has said no
			// Whatever the server asks for: else a client with another one sends none.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		})
		_ = client.Handshake() // the server's error is the one that counts
		if state := client.ConnectionState(); len(state.PeerCertificates) > 0 {
			name = state.PeerCertificates[0].Subject.CommonName
		}
		return name, <-served == nil
	}
	want := func(when, server string, oldGood, newGood bool, complaints int) {
		t.Helper()
		name, good := shake(oldCert, oldKey)
		if name != "" && name != server || good != oldGood {
			t.Errorf("%s: the server is %q and takes the old client: %t; want %s and %t", when, name, good, server, oldGood)
		}
		other, good := shake(newCert, newKey)
		if other != "" && other != server || good != newGood || name+other == "" {
			t.Errorf("%s: the server is %q and takes the new client: %t; want %s and %t", when, other, good, server, newGood)
		}
		if len(told) != complaints {
			t.Errorf("%s: told %v, want %d complaints", when, told, complaints)
		}
	}
	want("at the start", "old", true, false, 0)
	write(x.Cert, newCert)
	now = time.Now()
	want("a moment after a file was written", "old", true, false, 0)
	now = now.Add(SettleTime)
	want("with a certificate that is not the key's", "old", true, false, 1)
	want("once more", "old", true, false, 1)
	write(x.Key, newKey)
	now = time.Now().Add(SettleTime)
	want("with both", "new", true, false, 1)
	write(x.ClientCA, newCert)
	now = time.Now().Add(SettleTime)
	want("with another authority", "new", false, true, 1)
	if err := os.Remove(x.ClientCA); err != nil {
		t.Fatal(err)
	}
	want("without an authority", "new", false, true, 2)
}
