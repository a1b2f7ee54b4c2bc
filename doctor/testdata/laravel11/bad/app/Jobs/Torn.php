<?php

namespace App\Jobs;

class Torn
{
    public string $id = = ''; // ZB100
}
