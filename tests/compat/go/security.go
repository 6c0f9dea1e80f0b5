package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const pingTimeout = 10 * time.Second

// securitySettings say how the client comes in. They are JSON in the environment: a password on the command line
// is for all to see.
type securitySettings struct {
	TLS       bool   `json:"tls"`
	CA        string `json:"ca"`
	Cert      string `json:"cert"`
	Key       string `json:"key"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
}

// security gives the options that FRANZ_SECURITY asks for, or none.
func security() ([]kgo.Opt, error) {
	text := os.Getenv("FRANZ_SECURITY")
	if text == "" {
		return nil, nil
	}
	var settings securitySettings
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return nil, fmt.Errorf("FRANZ_SECURITY: %w", err)
	}
	var options []kgo.Opt
	if settings.TLS {
		config, err := settings.tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if settings.Mechanism != "" {
		mechanism, err := settings.mechanism()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (s securitySettings) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (s securitySettings) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: s.Token}.AsMechanism(), nil
	default:
		return nil, fmt.Errorf("mechanism %q is not PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", s.Mechanism)
	}
}

// ping asks any broker for anything, and says the error, which is empty when the client is let in.
func ping(arguments []string) error {
	flags := flag.NewFlagSet("ping", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	flags.Parse(arguments)
	client, err := newClient(*brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	say(event{"event": "ping", "error": kind(client.Ping(ctx))})
	return nil
}

// kind is Kafka's name of an error, or its text; not which check of a certificate failed.
func kind(err error) string {
	var kafka *kerr.Error
	var verification *tls.CertificateVerificationError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &kafka):
		return kafka.Message
	case errors.As(err, &verification):
		return "certificate verification"
	default:
		return err.Error()
	}
}
