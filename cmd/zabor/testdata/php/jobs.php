<?php
// The shop's handlers: one for each client library, all calling the proxy at
// $ZABOR_PROXY in place of the provider. Their code is that of docs/proxy.md; here
// stands what is around it.

// declared makes a class of that name whose method charge is the first example
// under a heading of docs/proxy.md, with $before and $after around it.
function declared(string $class, string $heading, string $before, string $after): void
{
    $page = file_get_contents(__DIR__.'/../../../../docs/proxy.md');
    if (!preg_match('/^### '.preg_quote($heading, '/').'\n\n```php\n(.*?)^```$/ms', $page, $m)) {
        throw new LogicException("docs/proxy.md has no example under \"$heading\"");
    }
    $code = str_replace('http://127.0.0.1:8070', getenv('ZABOR_PROXY'), $m[1]);
    eval("use Illuminate\\Support\\Facades\\Http;
        final class $class extends Handler {
            public function charge(string \$orderId, int \$cents): array {
                $before
                $code
                $after
            }
        }");
}

abstract class Handler
{
    abstract public function charge(string $orderId, int $cents): array;

    protected function declined($order): array
    {
        return ['declined'];
    }
}

// config is Laravel's helper, which its components do not bring.
function config(string $key): string
{
    return ['services.zabor.url' => getenv('ZABOR_PROXY')][$key];
}

// charge_CLIENT give the payment's id, and whether the answer was a stored one.

function charge_laravel_http(string $order, int $cents): array
{
    if (!class_exists('LaravelCharge')) {
        Illuminate\Support\Facades\Facade::setFacadeApplication(Illuminate\Container\Container::getInstance());
        declared('LaravelCharge', "Laravel's Http client", '$order = new class($orderId) {
            public $paid;
            public function __construct(public string $id) {}
            public function markPaid(string $payment) { $this->paid = $payment; }
        };', 'return [$order->paid, $response->header("Zabor-Replayed")];');
    }

    return (new LaravelCharge)->charge($order, $cents);
}

function charge_guzzle(string $order, int $cents): array
{
    declared('GuzzleCharge', 'Guzzle', '', 'return [$payment, $response->getHeaderLine("Zabor-Replayed")];');

    return (new GuzzleCharge)->charge($order, $cents);
}

function charge_symfony(string $order, int $cents): array
{
    if (!class_exists('SymfonyCharge')) {
        declared('SymfonyCharge', 'Symfony HttpClient', '$client = Symfony\Component\HttpClient\HttpClient::create();',
            'return [$payment, $headers["zabor-replayed"][0] ?? ""];');
    }

    return (new SymfonyCharge)->charge($order, $cents);
}

// charge_curl does what an SDK does that sets its own idempotency key and nothing
// else, such as stripe-php.
function charge_curl(string $order, int $cents): array
{
    $curl = curl_init(getenv('ZABOR_PROXY').'/acquirer/payments');
    $headers = [];
    curl_setopt_array($curl, [
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_POSTFIELDS => http_build_query(['amount' => $cents, 'currency' => 'EUR', 'order' => $order]),
        CURLOPT_HTTPHEADER => ['Authorization: Bearer sk_any', 'Idempotency-Key: zabor:'.rawurlencode($order).':charge'],
        CURLOPT_HEADERFUNCTION => function ($curl, $line) use (&$headers) {
            [$name, $value] = explode(':', $line, 2) + ['', ''];
            $headers[strtolower($name)] = trim($value);

            return strlen($line);
        },
    ]);
    $body = curl_exec($curl);
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($status === 402) {
        return ['declined'];
    }
    if (!in_array($status, [200, 201, 202, 410]) || $headers['zabor-state'] !== 'settled') {
        throw new RuntimeException("status $status: $body");
    }

    return [rawurldecode($headers['zabor-reference']), $headers['zabor-replayed'] ?? ''];
}
