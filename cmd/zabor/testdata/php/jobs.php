<?php
// The shop's handlers: one for each client library, all calling the proxy at
// $ZABOR_PROXY in place of the provider. docs/proxy.md shows their bodies.
// $ORDER, $AMOUNT are what the tests charge; what comes back is returned as an array.

// An order id is whatever the shop has: it is percent-encoded, so that a blank at its end survives.

function charge_laravel_http(string $order, int $cents): array
{
    // doc: laravel
    $response = (new Illuminate\Http\Client\Factory)
        ->withHeaders(['Zabor-Order' => rawurlencode($order), 'Zabor-Step' => 'charge'])
        ->timeout(90)
        ->post(getenv('ZABOR_PROXY').'/acquirer/payments', ['amount' => $cents, 'currency' => 'EUR', 'order' => $order]);
    if ($response->status() === 402) { // declined: stored, and a repeat says so again
        return ['declined', $response->header('Zabor-Replayed')];
    }
    $response->throw(); // 409, 503, 502 …: the queue tries again; 422, 423: it ends in failed_jobs

    return [$response['id'], $response->header('Zabor-Replayed')];
    // end
}

function charge_guzzle(string $order, int $cents): array
{
    // doc: guzzle
    $client = new GuzzleHttp\Client(['base_uri' => getenv('ZABOR_PROXY').'/acquirer/', 'timeout' => 90]);
    try {
        $response = $client->post('payments', [
            'headers' => ['Zabor-Order' => rawurlencode($order), 'Zabor-Step' => 'charge'],
            'json' => ['amount' => $cents, 'currency' => 'EUR', 'order' => $order],
        ]);
    } catch (GuzzleHttp\Exception\ClientException $e) { // 4xx; 409, 422, 423 go on to the queue
        if ($e->getResponse()->getStatusCode() !== 402) {
            throw $e;
        }

        return ['declined', $e->getResponse()->getHeaderLine('Zabor-Replayed')];
    }
    $payment = json_decode((string) $response->getBody(), true);

    return [$payment['id'], $response->getHeaderLine('Zabor-Replayed')];
    // end
}

function charge_symfony(string $order, int $cents): array
{
    // doc: symfony
    $client = Symfony\Component\HttpClient\HttpClient::create(['timeout' => 90]);
    $response = $client->request('POST', getenv('ZABOR_PROXY').'/acquirer/payments', [
        'headers' => ['Zabor-Order' => rawurlencode($order), 'Zabor-Step' => 'charge'],
        'json' => ['amount' => $cents, 'currency' => 'EUR', 'order' => $order],
    ]);
    if ($response->getStatusCode() === 402) {
        return ['declined', $response->getHeaders(false)['zabor-replayed'][0]];
    }
    $payment = $response->toArray(); // throws on 3xx, 4xx and 5xx: messenger tries again

    return [$payment['id'], $response->getHeaders()['zabor-replayed'][0]];
    // end
}

function charge_curl(string $order, int $cents): array
{
    // What an SDK does that sets its own idempotency key and nothing else.
    $curl = curl_init(getenv('ZABOR_PROXY').'/acquirer/payments');
    $replayed = '';
    curl_setopt_array($curl, [
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_POSTFIELDS => http_build_query(['amount' => $cents, 'currency' => 'EUR', 'order' => $order]),
        CURLOPT_HTTPHEADER => ['Authorization: Bearer sk_any', 'Idempotency-Key: zabor:'.rawurlencode($order).':charge'],
        CURLOPT_HEADERFUNCTION => function ($curl, $line) use (&$replayed) {
            if (0 === stripos($line, 'zabor-replayed:')) {
                $replayed = trim(substr($line, 15));
            }

            return strlen($line);
        },
    ]);
    $body = curl_exec($curl);
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($status === 402) {
        return ['declined', $replayed];
    }
    if ($status !== 201) {
        throw new RuntimeException("status $status: $body");
    }

    return [json_decode($body, true)['id'], $replayed];
}
